"""`zeromt inspect`: shows what a dataset, a checkpoint or a run holds, and whether it is whole; `zeromt report`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files import disk_errors, exists, is_dir, naming
from configs.process.progress import say
from configs.process.text import visible
from data_pipeline.preparation.report import inspect_dataset, is_dataset
from trainer.checkpoint.format import CheckpointError, read_checkpoint, verify
from trainer.checkpoint.weights_only import WEIGHTS_ONLY
from trainer.runs.layout import CHECKPOINTS, MANIFEST, METRICS_FILE, list_steps
from trainer.runs.parents import Parent, parent_in, parent_of_run


def run(*, path: str) -> int:
    """Print what is there; returns 0 if it is whole, else 1.

    Raises:
        UserError: the path holds none of the three.
    """
    with naming("PATH"):
        return _look(path)


def report(*, run: str) -> int:
    """Write `report.md` in the folder of a run, and say where it is.

    Raises:
        UserError: it is not a run, or the report cannot be written.
    """
    from trainer.report import write

    with disk_errors("RUN", Path(run)):
        written = write(Path(run))
    say(f"report: {visible(str(written))}")
    return 0


def _look(path: str) -> int:
    folder = Path(path)
    if "://" in path:
        lines, whole = inspect_dataset(path)
    elif not is_dir(folder):
        raise UserError(f"PATH: {path!r}: no such folder; give a dataset, a checkpoint or a run")
    elif is_dataset(folder):
        lines, whole = inspect_dataset(folder)
    elif exists(folder / MANIFEST):
        lines, whole = inspect_checkpoint(folder)
    elif is_dir(folder / CHECKPOINTS) or exists(folder / METRICS_FILE):
        lines, whole = inspect_run(folder)
    else:
        raise UserError(f"PATH: {path!r} is not a dataset, checkpoint or run; give a folder with one of them")
    print("\n".join(visible(line) for line in lines))
    return 0 if whole else 1


def inspect_checkpoint(folder: Path) -> tuple[list[str], bool]:
    """Describe a checkpoint, and verify each of its files."""
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError as error:
        return [f"checkpoint {folder}", f"broken: {error}"], False
    problems = verify(checkpoint)
    manifest = checkpoint.manifest
    lines = [
        f"checkpoint {folder}",
        f"step            {manifest['step']}",
        f"saved by        {_saved_by(manifest)}",
        f"versions        {', '.join(f'{k} {v}' for k, v in manifest['versions'].items())}",
        f"tokenizer       {manifest['fingerprints']['tokenizer'][:12]}",
        f"data            {', '.join(f[:12] for f in manifest['fingerprints']['data']) or 'unknown'}",
        *_parent_line(parent_in(manifest)),
        *(f"plugin          {name} {sha[:12]}" for name, sha in manifest["fingerprints"].get("plugins", {}).items()),
    ]
    if not problems:
        stream, trainer = checkpoint.state().get("stream"), checkpoint.state()["trainer"]
        stored = checkpoint.stored("model")
        elements = sum(math.prod(stored.shape(name)) for name in stored)
        if stream is not None:
            lines.append(f"position        epoch {stream['epoch']}, update {stream['update']}{_phase(trainer)}")
        average = ", and their moving average" if checkpoint.weights_kind(raw=False) == "ema" else ""
        lines += [
            f"trained         {_trained(trainer)}",
            f"weights         {elements} in {len(stored)} tensors{average}",
        ]
    lines += [f"  {record['bytes']:>14,}  {name}" for name, record in sorted(checkpoint.files.items())]
    lines += [f"broken: {p}" for p in problems] or ["whole: every file has the size and SHA-256 of the manifest"]
    return lines, not problems


def _parent_line(parent: Parent | None) -> list[str]:
    return [] if parent is None else [f"parent          {parent.describe()}"]


def _phase(trainer: Mapping[str, Any]) -> str:
    phase = trainer.get("phase")
    return "" if phase is None else f", phase {phase['name']} since step {phase['step']}"


def _trained(trainer: Mapping[str, Any]) -> str:
    if not trainer["step"]:  # imported
        return "elsewhere"
    return f"{trainer['target_tokens']} target tokens, {trainer['seconds']:.0f} s"


def _saved_by(manifest: Mapping[str, Any]) -> str:
    if WEIGHTS_ONLY in manifest:
        return f"zeromt {manifest[WEIGHTS_ONLY]['command']}: weights only"
    return f"{manifest['world_size']} ranks, ZeRO-{manifest['zero_stage']}, {manifest['precision']}"


def inspect_run(folder: Path) -> tuple[list[str], bool]:
    """Describe a run: its parent and its checkpoints, with every file verified."""
    lines, is_whole = [f"run {folder}", *_parent_line(parent_of_run(folder))], True
    for path in list_steps(folder / CHECKPOINTS):
        try:
            checkpoint = read_checkpoint(path)
            broken = bool(verify(checkpoint))
        except (CheckpointError, OSError):
            broken = True
        if broken and not is_dir(path):  # the run is training and has deleted it meanwhile
            continue
        is_whole &= not broken
        note = "BROKEN" if broken else "whole"
        if not broken and WEIGHTS_ONLY in checkpoint.manifest:
            note += f", weights only (zeromt {checkpoint.manifest[WEIGHTS_ONLY]['command']})"
        lines.append(f"checkpoint      {path.name}: {note}")
    return lines, is_whole
