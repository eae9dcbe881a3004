"""A training loop by hand in plain torch, the yardstick of `train`: no DeepSpeed, nothing of `model` or `trainer`.

Its model is in `plain_model`. Batches by length under a token budget; fused AdamW, memory that glibc keeps, bf16 by
autocast's cheaper cousin: bf16 copies of the weights that fp32 masters are rounded to after each step.
"""

import ctypes
import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.training.plain_model import BOS, EOS, PAD, Model

BETAS, EPS, WEIGHT_DECAY, CLIP_NORM = (0.9, 0.98), 1e-9, 0.01, 1.0
Pair = tuple[list[int], list[int]]
Batch = tuple[Tensor, Tensor, Tensor]
"""Source with EOS (B, S), target behind BOS and target with EOS, (B, T) each."""


def batches(pairs: Sequence[Pair], budget: int, dice: random.Random) -> Iterator[list[Pair]]:
    """One epoch: rows of like lengths, at most `budget` padded tokens of both sides, in random order."""
    order = sorted(pairs, key=lambda p: (len(p[1]), len(p[0]) + dice.random()))
    found: list[list[Pair]] = [[]]
    longest = [0, 0]
    for pair in order:
        longest = [max(a, len(b) + 1) for a, b in zip(longest, pair, strict=True)]
        if sum(longest) * (len(found[-1]) + 1) > budget and found[-1]:
            found.append([])
            longest = [len(side) + 1 for side in pair]
        found[-1].append(pair)
    dice.shuffle(found)
    yield from found


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """(rows, longest) ids."""
    out = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(out)


def tensors(batch: Sequence[Pair]) -> Batch:
    """Pad, with BOS and EOS."""
    return (
        pad([[*s, EOS] for s, _ in batch]),
        pad([[BOS, *t] for _, t in batch]),
        pad([[*t, EOS] for _, t in batch]),
    )


def endless(pairs: Sequence[Pair], budget: int, dice: random.Random) -> Iterator[Batch]:
    """Epoch after epoch."""
    while True:
        yield from map(tensors, batches(pairs, budget, dice))


def rate(update: int, *, peak: float, warmup: int, last: int) -> float:
    """Linear to the peak and to zero."""
    return peak * min(update / warmup, (last - update + 1) / max(1, last - warmup))


class Masters:
    """fp32 weights beside a model in bf16, or the model's own."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.masters = self.weights
        if dtype != torch.float32:
            self.masters = [p.detach().clone().requires_grad_() for p in self.weights]
            model.to(dtype)

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        """Clip, step and round."""
        if self.masters is not self.weights:
            for master, p in zip(self.masters, self.weights, strict=True):
                master.grad = p.grad.float() if p.grad is not None else None
                p.grad = None
        nn.utils.clip_grad_norm_(self.masters, clip_norm, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        if self.masters is not self.weights:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)


@dataclass
class Tally:
    """What updates held, and when the first of them began."""

    start: float = field(default_factory=time.perf_counter)
    ends: list[float] = field(default_factory=lambda: [time.time()])
    """Of the warm-up and of every update, seconds since the epoch."""
    counts: list[int] = field(default_factory=list)
    """Target tokens of every update."""
    filled: int = 0
    padded: int = 0

    def add(self, batch: Batch) -> None:
        """Of one update that is done."""
        source, _, labels = batch
        count = int((labels != PAD).sum())
        self.counts.append(count)
        self.ends.append(time.time())
        self.filled += count + int((source != PAD).sum())
        self.padded += source.numel() + labels.numel()

    def figures(self) -> dict[str, Any]:
        """Rates from the start until now, and the updates that they are of."""
        seconds, updates = time.perf_counter() - self.start, len(self.counts)
        return {
            "tokens_per_second": sum(self.counts) / seconds,
            "seconds_per_update": seconds / updates,
            "padding": 1 - self.filled / self.padded,
            "padded_per_update": self.padded / updates,
            "ends": self.ends,
            "counts": self.counts,
        }


class Average:
    """An exponential moving average of the weights; a decay of 0 keeps none, and gives the weights themselves."""

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.weights, self.decay = list(weights), decay
        self.averages = [w.detach().clone() for w in weights] if decay else self.weights

    @torch.no_grad()
    def add(self, update: int) -> None:
        """The weights after an update, counted from 1."""
        if self.decay:
            torch._foreach_lerp_(self.averages, self.weights, 1 - min(self.decay, update / (9 + update)))


class Keeper:
    """Writes weights every so many updates, and notes when they were reached by a clock that stands still meanwhile."""

    def __init__(self, folder: str, every: int) -> None:
        self.folder, self.every = Path(folder), every
        self.paused = 0.0
        self.kept: list[dict[str, Any]] = []

    def keep_if_due(self, update: int, model: nn.Module, average: Average) -> None:
        """fp32 weights by the model's names, after an update."""
        if self.every == 0 or update % self.every:
            return
        begin = time.time()
        file = self.folder / f"{update}.pt"
        torch.save(dict(zip(dict(model.named_parameters()), average.averages, strict=True)), file)
        self.kept.append({"update": update, "at": begin - self.paused, "file": str(file)})
        self.paused += time.time() - begin


def tune_process(threads: int) -> None:
    """All that makes torch quicker on a CPU and belongs to the process."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)
    libc.mallopt(-1, (1 << 31) - 1)


def adamw(weights: Sequence[Tensor], lr: float) -> torch.optim.Optimizer:
    """Matrices decay, norms and biases do not."""
    groups = [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPS, fused=True)


def train_on(batch: Batch, model: nn.Module, masters: Masters, optimizer: torch.optim.Optimizer, lr: float) -> float:
    """One update; the loss a token before it."""
    source, target, labels = batch
    count = int((labels != PAD).sum())
    loss = model(source, target, labels)
    (loss / count).backward()
    for group in optimizer.param_groups:
        group["lr"] = lr
    masters.step(optimizer, CLIP_NORM)
    return float(loss.detach()) / count


def train(
    *,
    pieces: str,
    sizes: dict[str, Any],
    threads: int,
    updates: int,
    warm_up: int,
    dtype: str,
    budget: int,
    peak: float,
    warmup_updates: int,
    seed: int = 1,
    ema_decay: float = 0.0,
    keep_every: int = 0,
    folder: str = "",
) -> dict[str, Any]:
    """Train, and measure from the update `warm_up` on.

    Args:
        pieces: a .npz of ids: source, target, and where each sentence of either ends.
        sizes: of the model.
        ema_decay: of the weights' moving average, which is what is written then.
        keep_every: updates after which the weights are written each time; 0 writes none. Rates count the writing too.
        folder: for those.

    Returns:
        Rates, memory and losses; `first_update_at`, seconds since the epoch; `kept`, the update, the file and `at`,
        seconds since the epoch less those that writing took.
    """
    tune_process(threads)
    torch.manual_seed(seed)
    model = Model(sizes).train()
    masters = Masters(model, getattr(torch, dtype))
    optimizer = adamw(masters.masters, peak)
    average = Average(masters.masters, ema_decay)
    stream = endless(read_pairs(Path(pieces)), budget, random.Random(seed))
    keeper = Keeper(folder, keep_every)
    losses, tally, first = [], Tally(), 0.0
    for update in range(1, updates + 1):
        if update == warm_up + 1:
            tally = Tally()
        batch = next(stream)
        lr = rate(update, peak=peak, warmup=warmup_updates, last=updates)
        losses.append(train_on(batch, model, masters, optimizer, lr))
        average.add(update)
        tally.add(batch)
        if update == 1:
            first = time.time()
        keeper.keep_if_due(update, model, average)
    return {
        **tally.figures(),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first_update_at": first,
        "losses": [losses[0], losses[-1]],
        "kept": keeper.kept,
        "version": torch.__version__,
    }


def read_pairs(path: Path) -> list[Pair]:
    """What `train` wrote."""
    arrays = np.load(path)
    sides = [
        [ids.tolist() for ids in np.split(arrays[side], arrays[f"{side}_ends"][:-1])] for side in ("source", "target")
    ]
    return list(zip(*sides, strict=True))
