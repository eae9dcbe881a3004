"""Checks before training: what ranks were told, what DeepSpeed can shard, a folder that all of them see."""

import contextlib
import dataclasses
import hashlib
import socket
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError
from configs.process.files import exists, explain
from configs.process.files.inside import look_again, write_text
from data_pipeline.prepared.dataset import open_index
from trainer.ranks.distributed import World
from trainer.runs.layout import CHECKPOINTS, versions

OF_A_NODE = ("output", "prepare", "trackers", "workers", "cache", "cache_gigabytes", "file", "source", "references")
"""Fields that may differ between nodes: places, what one rank alone reads, and numbers of workers."""
VERSIONS = ("zeromt", "torch", "deepspeed", "sentencepiece")


def check_agreement(config: RunConfig, parent: str | None, world: World) -> None:
    """Check that all ranks were told the same of what decides an update.

    Nodes may have other copies of a configuration, a plug-in, a dataset or a package under the same name. Weights would
    then be trained partly in one way and partly in another, without a word.

    Args:
        config: of this rank.
        parent: `--from`.
        world: the ranks.

    Raises:
        UserError: on every rank, naming the first rank that was told something else, and one field.
    """
    (first, ours), *others = world.gather((socket.gethostname(), agreement_hashes(config, parent)))
    for rank, (host, theirs) in enumerate(others, 1):
        for field in {**ours, **theirs}:
            if ours.get(field) != theirs.get(field):
                raise UserError(
                    f"{field}: rank {rank} on {host} was told something else than rank 0 on {first}; all ranks must "
                    "have the same configuration, data, plug-ins and versions"
                )


def agreement_hashes(config: RunConfig, parent: str | None) -> dict[str, str]:
    """Hashes of all that decides an update: values may be secret.

    They are the configuration's by field, those of datasets and plug-ins by content, and those of versions.
    """
    prints = {path: _fingerprint(path, config) for path in config.named_datasets}
    by_field = dict(_fields(dataclasses.asdict(config), "", prints))
    by_field |= {"prepare.output": prints.get(config.prepare.output), "--from": parent, **versions(VERSIONS)}
    return {field: hashlib.sha256(repr(value).encode()).hexdigest()[:16] for field, value in by_field.items()}


def _fields(value: Any, name: str, prints: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The values in a tree by their fields, with datasets' fingerprints in the place of their paths."""
    if isinstance(value, (dict, list)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in OF_A_NODE:
                yield from _fields(one, f"{name}.{key}".lstrip("."), prints)
    else:
        yield name, prints.get(value, value)


def _fingerprint(path: str, config: RunConfig) -> str:
    try:
        return open_index(path, config.stream)[2]
    except UserError as error:  # said by the rank that opens it; or another rank has it
        return str(error)


def make_shared(folder: Path, world: World) -> None:
    """Make the run's folder, and check that every rank sees what rank 0 writes there.

    Raises:
        UserError: it cannot be written, or is not shared between the machines.
    """
    probe = folder / world.from_main(f".shared-{uuid.uuid4().hex}")

    def write() -> None:
        where = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(probe, "seen?")  # not empty: a full disk would take that
            where = folder / CHECKPOINTS
            if exists(where):  # else it will be made in a folder that is known to be writable
                with tempfile.TemporaryFile(dir=where):
                    pass
        except OSError as error:
            _remove(probe)
            raise UserError(f"output: {str(where)!r} cannot be written: {explain(error)}") from error

    world.on_main(write)
    look_again(folder)
    sees = world.gather(exists(probe))
    if world.is_main:
        _remove(probe)
    if not all(sees):
        raise UserError(
            f"output: {str(folder)!r} is not shared: rank {sees.index(False)} does not see what rank 0 wrote; "
            "choose a folder that all machines of the run share"
        )


def _remove(probe: Path) -> None:
    with contextlib.suppress(OSError):
        probe.unlink(missing_ok=True)
