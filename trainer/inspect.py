"""`zeromt inspect`: what a dataset, a checkpoint or a run holds, and whether it is whole."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open

from configs import UserError
from data_pipeline.prepared.inspection import inspect_dataset, is_dataset
from trainer.checkpoint.format import MANIFEST, Checkpoint, CheckpointError, list_steps, read_checkpoint, verify
from trainer.checkpoint.weights_only import WEIGHTS_ONLY


def run(*, path: str) -> int:
    """Print what is there; 0 where it is whole, 1 where it is not.

    Raises:
        UserError: the path holds none of the three.
    """
    folder = Path(path)
    if "://" in path:
        lines, whole = inspect_dataset(path)
    elif not folder.is_dir():
        raise UserError(f"PATH: no such folder: {path!r}; allowed is a dataset, a checkpoint or a run")
    elif is_dataset(folder):
        lines, whole = inspect_dataset(folder)
    elif (folder / MANIFEST).exists():
        lines, whole = inspect_checkpoint(folder)
    elif (folder / "checkpoints").is_dir() or (folder / "metrics.jsonl").exists():
        lines, whole = inspect_run(folder)
    else:
        raise UserError(f"PATH: {path!r} is no dataset, checkpoint or run; allowed is a folder with one of them")
    print("\n".join(lines))
    return 0 if whole else 1


def inspect_checkpoint(folder: Path) -> tuple[list[str], bool]:
    """What a checkpoint holds, every file of it verified."""
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
        f"data            {', '.join(f[:12] for f in manifest['fingerprints']['data'])}",
    ]
    if not problems:
        stream, trainer = checkpoint.state().get("stream"), checkpoint.state()["trainer"]
        tensors, elements = _count_tensors(folder, [n for n in checkpoint.files if n.startswith("model-")])
        if stream is not None:
            lines.append(f"position        epoch {stream['epoch']}, update {stream['update']}")
        lines += [
            f"trained         {trainer['target_tokens']} target tokens, {trainer['seconds']:.0f} s",
            f"weights         {elements} in {tensors} tensors{_average(checkpoint)}",
        ]
    lines += [f"  {record.bytes:>14,}  {name}" for name, record in sorted(checkpoint.files.items())]
    lines += [f"broken: {p}" for p in problems] or ["whole: every file has the size and SHA-256 of the manifest"]
    return lines, not problems


def _average(checkpoint: Checkpoint) -> str:
    return ", and their moving average" if checkpoint.weights_kind(raw=False) == "ema" else ""


def _saved_by(manifest: Mapping[str, Any]) -> str:
    if WEIGHTS_ONLY in manifest:
        return f"zeromt {manifest[WEIGHTS_ONLY]['command']}: weights only"
    return f"{manifest['world_size']} ranks, ZeRO-{manifest['zero_stage']}, {manifest['precision']}"


def inspect_run(folder: Path) -> tuple[list[str], bool]:
    """A run's last figures, its scores and its checkpoints."""
    lines = [f"run {folder}"]
    train, scores = _read_metrics(folder / "metrics.jsonl")
    if train:
        lines.append(
            f"step            {train['step']}, epoch {train['epoch']}, loss {train['loss']:.4f}, "
            f"{train['tokens_per_second']:.0f} tokens/s, {train['total_seconds']:.0f} s in all"
        )
    for score in scores[-5:]:
        lines.append(f"evaluation      step {score['step']}: BLEU {score['bleu']:.2f}, chrF {score['chrf']:.2f}")
    whole = True
    for checkpoint in list_steps(folder / "checkpoints"):
        _, is_whole = inspect_checkpoint(checkpoint)
        lines.append(f"checkpoint      {checkpoint.name}: {'whole' if is_whole else 'BROKEN'}")
        whole &= is_whole
    return lines, whole


def _read_metrics(path: Path) -> tuple[dict[str, float], list[dict[str, float]]]:
    train: dict[str, float] = {}
    scores: list[dict[str, float]] = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the line that a running job is writing
                continue
            if entry["kind"] == "train":
                train = entry
            elif entry["kind"] == "evaluation":
                scores.append(entry)
    return train, scores


def _count_tensors(folder: Path, names: list[str]) -> tuple[int, int]:
    tensors = elements = 0
    for name in names:
        with safe_open(folder / name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 (not a dict)
                tensors += 1
                elements += math.prod(file.get_slice(key).get_shape())
    return tensors, elements
