"""What ranks were told: before anything is read, all must have been told the same of what decides an update.

Nodes may have other copies of a configuration, a plug-in, a dataset or a package under the same name. Weights would
then be trained partly in one way and partly in another, without a word.
"""

import dataclasses
import hashlib
import socket
from collections.abc import Iterator
from typing import Any

from configs import RunConfig, UserError
from configs.reading.variables import saved_fields
from data_pipeline.prepared.dataset import open_index
from trainer.changes import differences
from trainer.ranks.distributed import World
from trainer.ranks.messages import packed
from trainer.runs.identity import versions

NOT_COMPARED = {
    "": ("output", "prepare", "trackers"),
    "stream": ("workers", "cache", "cache_gigabytes"),
    "plugins": ("file",),
    "sets": ("source", "references"),
}
"""Fields, by the field that they are in, that may differ: places, what one rank alone reads, and numbers of workers."""
VERSIONS = ("zeromt", "torch", "deepspeed", "sentencepiece")
MOST_SHOWN = 5
"""How many fields a message names."""


def check_agreement(config: RunConfig, parent: str | None, world: World) -> None:
    """Check that all ranks were told the same; they send each other a hash, and more only where that differs.

    Args:
        config: of this rank.
        parent: `--from`.
        world: the ranks.

    Raises:
        UserError: on every rank, naming fields, ranks, hosts and values.
    """
    if world.size == 1:
        return
    told = what_was_told(config, parent)
    if len(set(world.gather(hashlib.sha256(packed(told)).hexdigest()))) > 1:
        raise UserError("\n".join(disagreements(world.gather((socket.gethostname(), told)))))


def what_was_told(config: RunConfig, parent: str | None) -> dict[str, Any]:
    """All that decides an update: the configuration, its datasets and plug-ins by their hashes, and the versions."""
    fingerprints = {path: _fingerprint(path, config) for path in config.named_datasets}
    told: dict[str, Any] = _compared(dataclasses.asdict(config), saved_fields(config), "", fingerprints)
    return {
        **told,
        "prepare.output": fingerprints[config.prepare.output] if config.reads_prepared else None,
        "--from": parent,
        "version": versions(VERSIONS),
    }


def disagreements(told: list[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Lines about the first rank that was told something else than rank 0.

    Args:
        told: the host of each rank, and what it was told.
    """
    (first, ours), *others = told
    rank, host, theirs = next((n, host, theirs) for n, (host, theirs) in enumerate(others, 1) if theirs != ours)
    fields = list(differences(theirs, ours))
    for field, (one, other) in fields[:MOST_SHOWN]:
        yield f"{field}: rank {rank} on {host} has {one}, and rank 0 on {first} {other}; all ranks must have the same"
    if len(fields) > MOST_SHOWN:
        yield f"and {len(fields) - MOST_SHOWN} more differ"


def _fingerprint(path: str, config: RunConfig) -> str:
    try:
        return open_index(path, config.stream)[2]
    except UserError as error:  # said by the rank that opens it; or another rank has it
        return str(error)


def _compared(value: Any, kept: Any, name: str, fingerprints: dict[str, str]) -> Any:
    """A field's value without what may differ, and with the fingerprints of datasets in the place of their paths.

    Args:
        value: with variables of the environment in it.
        kept: as it is saved, where it is `${oc.env:NAME}`: that is told, and a hash of the value, which may be secret.
        name: of the field.
        fingerprints: by paths.
    """
    if isinstance(value, dict):
        left = {key: one for key, one in value.items() if key not in NOT_COMPARED.get(name, ())}
        return {key: _compared(one, kept[key], key, fingerprints) for key, one in left.items()}
    if isinstance(value, list):
        return [_compared(one, saved, name, fingerprints) for one, saved in zip(value, kept, strict=True)]
    if isinstance(value, str) and value in fingerprints:
        return fingerprints[value]
    return value if value == kept else f"{kept} (SHA-256 {hashlib.sha256(packed(value)).hexdigest()[:12]})"
