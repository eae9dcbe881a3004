"""A training loop by hand in plain torch, the yardstick of `train.py`: no DeepSpeed, nothing of `model` or `trainer`.

Pre-norm Transformer with sinusoids, tied embeddings and label smoothing, batches by length under a token budget. What
pays on a CPU is in it: one product for queries, keys and values, logits of the targets that are not padding alone,
dropout masks from raw random bytes, fused AdamW, memory that glibc keeps, bf16 by autocast's cheaper cousin: bf16
copies of the weights that fp32 masters are rounded to after each step.
"""

import ctypes
import math
import random
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD, BOS, EOS = 0, 1, 2
Pair = tuple[list[int], list[int]]


class Dropout(nn.Module):
    """Masks from raw bytes: an eighth of the random numbers, `p` to the nearest 1/256."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.threshold = round(256 * p)

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements while training."""
        if not self.training or self.threshold == 0:
            return x
        raw = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        keep = (raw.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold).to(x.dtype)
        return x * keep.mul_(256 / (256 - self.threshold))


class Attention(nn.Module):
    """Self-attention with one product for all three, or attention to a memory with two."""

    def __init__(self, width: int, heads: int, *, is_self: bool) -> None:
        super().__init__()
        self.heads, self.is_self = heads, is_self
        self.query = nn.Linear(width, 3 * width if is_self else width)
        self.memory = None if is_self else nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None, bias: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D), over itself or over a memory (B, S, D)."""
        if self.memory is None or memory is None:
            q, k, v = self.query(x).chunk(3, -1)
        else:
            q, (k, v) = self.query(x), self.memory(memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + bias
        out: Tensor = self.out(torch.matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """x + dropout(sublayer(norm(x))), two or three times."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, *, is_decoder: bool) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Attention(width, heads, is_self=True)])
        if is_decoder:
            self.attentions.append(Attention(width, heads, is_self=False))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if is_decoder else 2)])
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, own_bias: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        x = x + self.dropout(self.attentions[0](self.norms[0](x), None, own_bias))
        if memory is not None:
            x = x + self.dropout(self.attentions[1](self.norms[1](x), memory, bias))
        hidden = self.dropout(F.relu(self.inner(self.norms[-1](x))))
        out: Tensor = x + self.dropout(self.outer(hidden))
        return out


class Model(nn.Module):
    """Encoder and decoder with one embedding for both sides and the output."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width, dropout = sizes["d_model"], sizes["dropout"]
        common = (width, sizes["num_heads"], sizes["d_ff"], dropout)
        self.embedding = nn.Embedding(sizes["vocab"], width)
        self.encoder = nn.ModuleList([Layer(*common, is_decoder=False) for _ in range(sizes["encoder_layers"])])
        self.decoder = nn.ModuleList([Layer(*common, is_decoder=True) for _ in range(sizes["decoder_layers"])])
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = Dropout(dropout)
        self.register_buffer("positions", sinusoids(1024, width))
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.xavier_uniform_(p)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        out: Tensor = self.dropout(x + self.positions[: ids.shape[1]])
        return out

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S) ids to memory (B, S, D) and the bias (B, 1, 1, S) that hides its padding."""
        x = self.embed(source)
        bias = torch.zeros(source.shape, dtype=x.dtype).masked_fill_(source == PAD, -1e9)[:, None, None]
        for layer in self.encoder:
            x = layer(x, bias)
        return self.norms[0](x), bias

    def decode(self, target: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        """(B, T) ids to hidden states (B, T, D)."""
        x = self.embed(target)
        future = torch.full((target.shape[1], target.shape[1]), -1e9, dtype=x.dtype).triu_(1)
        for layer in self.decoder:
            x = layer(x, future, memory, bias)
        out: Tensor = self.norms[1](x)
        return out

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """The sum of the smoothed loss over the labels that are not padding."""
        hidden = self.decode(target, *self.encode(source)).flatten(0, 1)
        rows = (labels.flatten() != PAD).nonzero()[:, 0]
        logits = F.linear(hidden.index_select(0, rows), self.embedding.weight)
        return F.cross_entropy(logits, labels.flatten().index_select(0, rows), reduction="sum", label_smoothing=0.1)


def sinusoids(length: int, width: int) -> Tensor:
    """(length, width) (Vaswani et al., 2017)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


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


def tensors(batch: Sequence[Pair]) -> tuple[Tensor, Tensor, Tensor]:
    """Source with its end mark, target behind a begin mark, target with its end mark."""
    return (
        pad([[*s, EOS] for s, _ in batch]),
        pad([[BOS, *t] for _, t in batch]),
        pad([[*t, EOS] for _, t in batch]),
    )


def endless(pairs: Sequence[Pair], budget: int, dice: random.Random) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Epoch after epoch."""
    while True:
        yield from map(tensors, batches(pairs, budget, dice))


def rate(update: int, *, peak: float, warmup: int, last: int) -> float:
    """Linear to the peak and to zero."""
    return peak * min(update / warmup, (last - update + 1) / max(1, last - warmup))


class Masters:
    """fp32 weights beside a model in bf16, or the model's own."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self.weights = [p for p in model.parameters() if p.requires_grad]
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
    seconds: float | None = None,
    save: str | None = None,
) -> dict[str, Any]:
    """Train, and measure from the update `warm_up` on.

    Args:
        pieces: a .npz of ids: source, target, and where each sentence of either ends.
        sizes: of the model.
        seconds: stop after so many, whatever `updates` says.
        save: a file for the weights.
    """
    begun = time.time()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 30)
    libc.mallopt(-1, (1 << 31) - 1)
    torch.manual_seed(1)
    model = Model(sizes).train()
    masters = Masters(model, getattr(torch, dtype))
    groups = [
        {"params": [p for p in masters.masters if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in masters.masters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), eps=1e-9, fused=True)
    stream = endless(read_pairs(Path(pieces)), budget, random.Random(1))
    losses, tokens, padded, filled = [], 0, 0, 0
    start = first = time.perf_counter()
    for update in range(1, updates + 1):
        if update == warm_up + 1:
            start, tokens, padded, filled = time.perf_counter(), 0, 0, 0
        source, target, labels = next(stream)
        count = int((labels != PAD).sum())
        loss = model(source, target, labels)
        (loss / count).backward()
        for group in optimizer.param_groups:
            group["lr"] = rate(update, peak=peak, warmup=warmup_updates, last=updates)
        masters.step(optimizer, 1.0)
        losses.append(float(loss.detach()) / count)
        tokens += count
        padded += source.numel() + labels.numel()
        filled += count + int((source != PAD).sum())
        if update == 1:
            first = time.time()
        if seconds is not None and time.time() - begun > seconds:
            break
    took = time.perf_counter() - start
    if save is not None:
        torch.save({k: v.float() for k, v in model.state_dict().items()}, save)
    return {
        "tokens_per_second": tokens / took,
        "seconds_per_update": took / (update - warm_up),
        "padding": 1 - filled / padded,
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first_update_at": first,
        "losses": [losses[0], losses[-1]],
        "version": torch.__version__,
    }


def read_pairs(path: Path) -> list[Pair]:
    """What `train.py` wrote."""
    arrays = np.load(path)
    sides = [
        [ids.tolist() for ids in np.split(arrays[side], arrays[f"{side}_ends"][:-1])] for side in ("source", "target")
    ]
    return list(zip(*sides, strict=True))
