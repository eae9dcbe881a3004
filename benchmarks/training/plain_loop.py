"""The baseline of `train`: a hand-written training loop in plain torch, without DeepSpeed, `model` or `trainer`.

Its model is in `plain_model`. It uses batches by length under a token budget, fused AdamW, glibc settings that keep
freed memory, and, in bf16, a bf16 model whose weights are rounded from fp32 master weights after each step.
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
"""Source with EOS (B, S), target after BOS (B, T), and target with EOS (B, T)."""


def batches(pairs: Sequence[Pair], budget: int, rng: random.Random) -> Iterator[list[Pair]]:
    """One epoch of batches in random order, with similar lengths and at most `budget` padded tokens on both sides."""
    order = sorted(pairs, key=lambda p: (len(p[1]), len(p[0]) + rng.random()))
    epoch: list[list[Pair]] = [[]]
    longest = [0, 0]
    for pair in order:
        longest = [max(a, len(b) + 1) for a, b in zip(longest, pair, strict=True)]
        if sum(longest) * (len(epoch[-1]) + 1) > budget and epoch[-1]:
            epoch.append([])
            longest = [len(side) + 1 for side in pair]
        epoch[-1].append(pair)
    rng.shuffle(epoch)
    yield from epoch


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Pad rows of ids to (rows, longest)."""
    out = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(out)


def tensors(batch: Sequence[Pair]) -> Batch:
    """Add BOS and EOS, and pad."""
    return (
        pad([[*s, EOS] for s, _ in batch]),
        pad([[BOS, *t] for _, t in batch]),
        pad([[*t, EOS] for _, t in batch]),
    )


def endless(pairs: Sequence[Pair], budget: int, rng: random.Random) -> Iterator[Batch]:
    """Batches of endless epochs."""
    while True:
        yield from map(tensors, batches(pairs, budget, rng))


def rate(update: int, *, peak: float, warmup: int, last: int) -> float:
    """Learning rate: linear warm-up to `peak`, then linear decay to zero."""
    return peak * min(update / warmup, (last - update + 1) / max(1, last - warmup))


class Masters:
    """fp32 master weights of a bf16 model; for an fp32 model, its own weights."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.weights: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.masters = self.weights
        if dtype != torch.float32:
            self.masters = [p.detach().clone().requires_grad_() for p in self.weights]
            model.to(dtype)

    def step(self, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        """Clip gradients, step, and round the master weights to the model's."""
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
    """Token counts of updates."""

    start: float = field(default_factory=time.perf_counter)
    updates: int = 0
    tokens: int = 0
    """Target tokens."""
    filled: int = 0
    padded: int = 0

    def add(self, batch: Batch) -> None:
        """Count a finished update."""
        source, _, labels = batch
        count = int((labels != PAD).sum())
        self.updates += 1
        self.tokens += count
        self.filled += count + int((source != PAD).sum())
        self.padded += source.numel() + labels.numel()

    def figures(self) -> dict[str, Any]:
        """Rates from the start until now."""
        seconds = time.perf_counter() - self.start
        return {
            "tokens_per_second": self.tokens / seconds,
            "seconds_per_update": seconds / self.updates,
            "padding": 1 - self.filled / self.padded,
            "padded_per_update": self.padded / self.updates,
        }


def tune_process(threads: int) -> None:
    """Process-wide settings that make torch faster on a CPU."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)
    libc.mallopt(-1, (1 << 31) - 1)


def adamw(weights: Sequence[Tensor], lr: float) -> torch.optim.Optimizer:
    """AdamW with weight decay on matrices only, not on norms and biases."""
    groups = [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=BETAS, eps=EPS, fused=True)


def train_on(batch: Batch, model: nn.Module, masters: Masters, optimizer: torch.optim.Optimizer, lr: float) -> float:
    """One update; returns the loss per token before it."""
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
) -> dict[str, Any]:
    """Train, and time the updates after the first `warm_up`.

    Args:
        pieces: an .npz file with the ids of both sides, and where each sentence ends.
        sizes: sizes of the model.

    Returns:
        Rates, memory and losses.
    """
    tune_process(threads)
    torch.manual_seed(seed)
    model = Model(sizes).train()
    masters = Masters(model, getattr(torch, dtype))
    optimizer = adamw(masters.masters, peak)
    stream = endless(read_pairs(Path(pieces)), budget, random.Random(seed))
    losses, tally = [], Tally()
    for update in range(1, updates + 1):
        if update == warm_up + 1:
            tally = Tally()
        batch = next(stream)
        lr = rate(update, peak=peak, warmup=warmup_updates, last=updates)
        losses.append(train_on(batch, model, masters, optimizer, lr))
        tally.add(batch)
    return {
        **tally.figures(),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "losses": [losses[0], losses[-1]],
        "version": torch.__version__,
    }


def read_pairs(path: Path) -> list[Pair]:
    """The pairs in an .npz file of `trainers.prepare`."""
    arrays = np.load(path)
    sides = [
        [ids.tolist() for ids in np.split(arrays[side], arrays[f"{side}_ends"][:-1])] for side in ("source", "target")
    ]
    return list(zip(*sides, strict=True))
