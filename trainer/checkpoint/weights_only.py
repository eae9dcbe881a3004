"""Checkpoints with weights only, as averaging and importing make them.

They differ from others in that they have no optimizer files, their state has no position in the data, and the manifest
says where the weights are from. Translation uses them like any other; training can start from one if data and optimizer
start afresh (fine-tuning).
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from configs import RunConfig, UserError
from configs.load import dump_run, parse_run
from configs.plugins import hashes, keep_copies
from configs.process.files.inside import write_text
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint import format as format_
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.newest import point_to
from trainer.checkpoint.state import TrainerState
from trainer.runs import layout
from trainer.runs.layout import versions

WEIGHTS_ONLY = "weights_only"
"""The manifest's key: an object with `command` and what it was made of."""
NEEDED = frozenset({"data", "optimizer"})


def check_reset(checkpoint: Checkpoint, reset: Collection[str]) -> None:
    """Refuse to resume an optimizer or a data position that the checkpoint does not have.

    Raises:
        UserError: the checkpoint holds weights only, and `reset` does not name both data and optimizer.
    """
    if WEIGHTS_ONLY in checkpoint.manifest and not set(reset) >= NEEDED:
        given = ",".join(sorted(reset)) or "nothing"
        raise UserError(
            f"--reset: {given}, and {checkpoint.folder} holds weights only; allowed is --reset data,optimizer"
        )


def write_run(
    folder: Path,
    final: Path,
    config: RunConfig,
    tokenizer: Tokenizer,
    *,
    tensors: Iterable[tuple[str, Tensor]],
    state: TrainerState,
    data_fingerprints: Sequence[str],
    origin: Mapping[str, Any],
    sources: Sequence[Any] = (),
) -> Path:
    """Write a run's folder with one checkpoint of weights.

    Args:
        folder: an empty one to write in.
        final: its final path; `output` and `name` of the configuration are set from it, so that `zeromt train
            FINAL/config.yaml --reset data,optimizer` trains on there.
        config: of the run that the weights are from.
        tokenizer: of its vocabularies.
        tensors: fp32 weights by name.
        state: its step names the checkpoint.
        data_fingerprints: of the datasets that it was trained on.
        origin: `command`, and what the weights were made from, for the manifest.
        sources: `SOURCES` of its checkpoint.

    Returns:
        The checkpoint's folder.

    Raises:
        OSError: it cannot be written.
        CheckpointError: reading back did not give what was written.
        ConfigError: `final` is not a valid name of a run.
    """
    config_yaml = dump_run(_renamed(config, final))
    checkpoint = layout.checkpoint_folder(folder, state.step)
    checkpoint.mkdir(parents=True)
    records: dict[str, format_.Record] = {}
    for number, part in enumerate(format_.parts(("model", *named) for named in tensors)):
        records |= format_.write_part(checkpoint, part, number)
    fingerprints = {"data": list(data_fingerprints), "tokenizer": tokenizer.fingerprint, **hashes(config.plugins)}
    format_.complete(
        checkpoint,
        tensors=records,
        state={"trainer": state.to_json()},
        config_yaml=config_yaml,
        tokenizer_files=tokenizer.files(),
        manifest={
            "step": state.step,
            "world_size": 1,
            "zero_stage": 0,
            "precision": "fp32",
            "versions": versions(),
            "fingerprints": fingerprints,
            WEIGHTS_ONLY: dict(origin),
            **({format_.SOURCES: list(sources)} if sources else {}),
        },
    )
    format_.read_whole(checkpoint)
    point_to(checkpoint.parent, checkpoint.name)
    write_text(folder / layout.CONFIG, config_yaml)
    keep_copies(folder, config.plugins)
    return checkpoint


def _renamed(config: RunConfig, final: Path) -> RunConfig:
    """The configuration with the name and output of that folder.

    Raises:
        ConfigError: its name is not a valid name of a run.
    """
    absolute = final.absolute()
    return dataclasses.replace(config, name=parse_run({"name": absolute.name}).name, output=str(absolute.parent))
