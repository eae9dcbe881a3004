"""One run with everything on, made once: two ranks, ZeRO-1, phases of a mixture, parts frozen, and one NaN."""

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
CONFIG = """
name: everything
stream: {micro_batches: 2, source_tokens: 512, target_tokens: 512, window_pairs: 64}
model: {d_model: 16, encoder_layers: 1, decoder_layers: 1, max_positions: 128, attention: {num_heads: 2},
        feed_forward: {d_ff: 32}, tied_embeddings: decoder}
optimizer: {lr: 3.0e-3, eps: 1.0e-3}  # with a small eps, rounding moves what has next to no gradient by whole steps
schedule: {kind: inverse_sqrt, warmup_updates: 4}
phases:
- {name: both, until: {updates: 7},
   datasets: [{path: dataset, weight: 1, loss_weight: 0.5}, {path: dataset_b, weight: 2}]}
- {name: one, until: {passes: 1}, datasets: [{path: dataset_b}], augment: [{kind: upper_case, probability: 0.5}]}
- {name: flat, until: {plateau: {patience: 2, metric: nll, min_delta: 5}}, datasets: [{path: dataset}],
   schedule: {kind: constant, warmup_updates: 3}}
- {name: last, datasets: [{path: dataset_b}, {path: dataset}], temperature: 3,
   schedule: {kind: plateau, metric: nll, patience: 1, min_delta: 99, warmup_updates: 0}}
engine: {zero_stage: 1, precision: fp32}
training: {max_updates: 99, log_every: 1, ema_decay: 0.9, freeze: [source_embedding],
           early_stopping: {metric: nll, patience: 3, min_delta: 99, after: 18}}
evaluation:
  every_updates: 3
  max_pairs: 2
  search: {max_length_ratio: 0.1, max_length_extra: 2}
  sets: [{name: own, prepared: valid}, {name: b, source: corpus/b.en, references: [corpus/b.fr]}]
  queued: [{name: length, command: [awk, '{print length}']}]
checkpoint: {every_updates: 5, keep_last: 20}
"""


def place_in(folder: Path) -> Path:
    """Datasets and `everything.yaml`, with no run of it."""
    shutil.copytree(small_runs(), folder, dirs_exist_ok=True)
    small = (folder / "small.yaml").read_text()
    (folder / "everything.yaml").write_text(small[small.index("prepare:") : small.index("stream:")] + CONFIG)
    return folder


def train(arguments: list[str], nan_at: int, killed_at: int) -> int:
    """As a rank: how `python -m trainer` ends, whose losses are NaN in an update, or which is killed in one."""
    from trainer.engines.deepspeed.engine import DeepSpeedEngine
    from trainer.main import main

    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    accumulate, step, updates = DeepSpeedEngine.accumulate, DeepSpeedEngine.step, 1

    def disturbed(self: DeepSpeedEngine, batch: Any, *, scale: float, is_last: bool) -> Any:
        if updates == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return accumulate(self, batch, scale=math.nan if updates == nan_at else scale, is_last=is_last)

    def counted(self: DeepSpeedEngine, lr: float) -> Any:
        nonlocal updates
        updates += 1  # what is tried before the first is none
        return step(self, lr)

    DeepSpeedEngine.accumulate, DeepSpeedEngine.step = disturbed, counted  # type: ignore[method-assign]
    os._exit(main(arguments))


def start(
    forked: Forked, place: Path, *settings: str, ranks: int = 2, nan_at: int = 0, killed_at: int = 0
) -> list[int]:
    """How each rank of a start in such a place ends; updates count from its first one."""
    return forked.ranks(ranks, train, ["everything.yaml", *settings], nan_at, killed_at, cwd=place, meet=False)


def everything(forked: Forked) -> Path:
    """Its folder, `runs/everything` of a place; not to be written to."""

    def make(folder: Path) -> None:
        assert start(forked, place_in(folder), nan_at=NAN) == [0, 0]

    return once("everything", make) / "runs" / "everything"
