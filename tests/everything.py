"""One run with everything on, made once: two ranks, ZeRO-1, phases of a mixture with parts frozen, and one NaN."""

import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from tests.forked import Forked
from tests.once import once
from tests.small import small_runs

LAST, NAN = 27, 4
"""Updates until it stands still, and the one that is skipped."""
PHASES = """[
  {name: both, until: {updates: 7}, freeze: [encoder, source_embedding],
   datasets: [{path: dataset, weight: 1, loss_weight: 0.5}, {path: dataset_b, weight: 2}]},
  {name: one, until: {passes: 1}, datasets: [{path: dataset_b}], augment: [{kind: upper_case, probability: 0.5}]},
  {name: flat, until: {plateau: {patience: 2, metric: nll, min_delta: 5}}, datasets: [{path: dataset}],
   schedule: {kind: constant, warmup_updates: 3}, freeze: [output]},
  {name: last, datasets: [{path: dataset_b}, {path: dataset}], temperature: 3,
   schedule: {kind: plateau, metric: nll, patience: 1, min_delta: 99, warmup_updates: 0}}]"""
SETTINGS = [
    f"phases={PHASES.replace(chr(10), '')}",
    "name=everything",
    "model.tied_embeddings=decoder",
    "optimizer.eps=1e-3",  # with a small one, rounding moves what has next to no gradient by whole steps
    "training.max_updates=99",
    "training.early_stopping={metric: nll, patience: 3, min_delta: 99, after: 18}",
    "training.record_pairs=true",
    "training.memory_probe=false",
    "stability.hash_every_updates=3",
    "evaluation.every_updates=3",
    "evaluation.max_pairs=2",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 2}",
    "evaluation.sets=[{name: own, prepared: valid}, {name: b, source: corpus/b.en, references: [corpus/b.fr]}]",
    "evaluation.queued=[{name: length, command: [awk, '{print length}']}]",
    "checkpoint.every_updates=5",
    "checkpoint.keep_last=20",
]


def place_in(folder: Path) -> Path:
    """Datasets and `everything.yaml`, with no run of it."""
    shutil.copytree(small_runs(), folder, dirs_exist_ok=True)
    shutil.copy(folder / "small.yaml", folder / "everything.yaml")
    return folder


def train(arguments: list[str], nan_at: int, killed_at: int) -> int:
    """As a rank: how `python -m trainer` ends, whose losses are NaN in an update, or which is killed in one."""
    from trainer.engines.deepspeed.engine import DeepSpeedEngine
    from trainer.main import main

    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    accumulate, updates = DeepSpeedEngine.accumulate, 1

    def disturbed(self: DeepSpeedEngine, batch: Any, *, scale: float, is_last: bool) -> Any:
        nonlocal updates
        if updates == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        out = accumulate(self, batch, scale=math.nan if updates == nan_at else scale, is_last=is_last)
        updates += is_last
        return out

    DeepSpeedEngine.accumulate = disturbed  # type: ignore[method-assign]
    os._exit(main(arguments))


def start(
    forked: Forked, place: Path, *settings: str, ranks: int = 2, nan_at: int = 0, killed_at: int = 0
) -> list[int]:
    """How each rank of a start in such a place ends; updates count from its first one."""
    arguments = ["everything.yaml", *SETTINGS, *settings]
    return forked.ranks(ranks, train, arguments, nan_at, killed_at, cwd=place, meet=False)


def everything(forked: Forked) -> Path:
    """Its folder, `runs/everything` of a place; not to be written to."""

    def make(folder: Path) -> None:
        assert start(forked, place_in(folder), nan_at=NAN) == [0, 0]

    return once("everything", make) / "runs" / "everything"
