"""`zeromt inspect`: shows what a dataset, a checkpoint or a run holds, and whether it is whole."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import UserError
from configs.components.training import Described, metric_keys
from configs.process.files import exists, is_dir, naming
from configs.process.text import visible
from data_pipeline.inspection import inspect_dataset, is_dataset, pairs_by_score
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.format import CheckpointError, read_checkpoint, verify
from trainer.checkpoint.weights_only import WEIGHTS_ONLY
from trainer.runs.layout import CHECKPOINTS, MANIFEST, METRICS_FILE, list_steps
from trainer.runs.metrics_file import number, read_formats, read_lines
from trainer.runs.parents import Parent, parent_in, parent_of_run


def run(*, path: str, worst: list[str] | None = None, best: list[str] | None = None) -> int:
    """Print what is there; returns 0 if it is whole, else 1. Or the pairs of a dataset's lowest or highest scores.

    Raises:
        UserError: the path holds none of the three, or no such score.
    """
    with naming("PATH"):
        for option, given in (("--worst", worst), ("--best", best)):
            if given is not None:
                lines = pairs_by_score(
                    Dataset.load(path), given[0], _count(option, given[1]), highest=option == "--best"
                )
                print("\n".join(visible(line) for line in lines))
        return 0 if worst or best else _look(path)


def _count(option: str, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UserError(f"{option}: {text!r}; allowed is the name of a score and a number of pairs, such as qe 100")
    return int(text)


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
        raise UserError(f"PATH: {path!r} is no dataset, checkpoint or run; give a folder with one of them")
    print("\n".join(visible(line) for line in lines))
    return 0 if whole else 1


def inspect_checkpoint(folder: Path) -> tuple[list[str], bool]:
    """Describe a checkpoint; every file of it is verified."""
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


def _origin(folder: Path) -> str | None:
    """The command that made a weights-only checkpoint; None for a checkpoint of training."""
    made = read_checkpoint(folder).manifest.get(WEIGHTS_ONLY)
    return None if made is None else str(made["command"])


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
    """Describe a run: its last figures, scores and checkpoints."""
    lines = [f"run {folder}", *_parent_line(parent_of_run(folder))]
    figures = list(read_lines(folder / METRICS_FILE))
    train = next((line for line in reversed(figures) if line.get("kind") == "train"), None)
    scores = [line for line in figures if line.get("kind") == "evaluation"]
    if train is not None:
        lines.append(f"step            {_last_figures(train)}")
    formats = read_formats(folder)
    current = next((score["series"] for score in reversed(scores) if score.get("series")), None)
    for score in scores[-5:]:
        shown = ", ".join(_figure(score, key, formats.get(key, Described(label=key))) for key in metric_keys(score))
        note = "" if score.get("series") in (None, current) else ", of another series of scores"
        lines.append(f"evaluation      step {_number(score, 'step', 0)}: {shown}{note}")
    whole = True
    for checkpoint in list_steps(folder / CHECKPOINTS):
        try:
            _, is_whole = inspect_checkpoint(checkpoint)
            origin = _origin(checkpoint) if is_whole else None
        except OSError:
            is_whole = False
        if not is_whole and not is_dir(checkpoint):  # the run is training and has deleted it meanwhile
            continue
        note = f", weights only (zeromt {origin})" if is_whole and origin else ""
        lines.append(f"checkpoint      {checkpoint.name}: {'whole' if is_whole else 'BROKEN'}{note}")
        whole &= is_whole
    return lines, whole


def _figure(score: Mapping[str, Any], key: str, how: Described) -> str:
    value = number(score, key)
    return f"{how.label} unknown" if math.isnan(value) else f"{how.label} {value:.{how.digits}f}"


def _last_figures(train: Mapping[str, Any]) -> str:
    """The figures of a training line; without a loss if every update since the line before was skipped."""
    losses = ", ".join(f"{key} {_number(train, key, 4)}" for key in ("loss", "nll") if key in train)
    return (
        f"{_number(train, 'step', 0)}, epoch {_number(train, 'epoch', 0)}, {losses}, "
        f"{_number(train, 'tokens_per_second', 0)} tokens/s, {_number(train, 'total_seconds', 0)} s in all"
    )


def _number(figures: Mapping[str, Any], key: str, digits: int = 2) -> str:
    value = figures.get(key)
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "unknown"
