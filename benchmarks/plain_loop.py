"""A training loop by hand in plain torch, the yardstick of `train.py`: no DeepSpeed, nothing of `model` or `trainer`.

Pre-norm Transformer with sinusoids, tied embeddings and label smoothing, batches by length under a token budget. What
pays on a CPU is in it: fp32 products by oneDNN, one for queries, keys and values, logits of real targets alone,
dropout masks from raw random bytes, fused AdamW, memory that glibc keeps, bf16 by autocast's cheaper cousin: bf16
copies of the weights that fp32 masters are rounded to after each step.
"""

import ctypes
import math
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
from torch.nn import functional as F

PAD, BOS, EOS = 0, 1, 2
CPUS = Path("/proc/cpuinfo")
IS_INTEL = CPUS.exists() and "GenuineIntel" in CPUS.read_text(encoding="utf-8", errors="replace")
"""There MKL is the faster one."""
BETAS, EPS, WEIGHT_DECAY, CLIP_NORM = (0.9, 0.98), 1e-9, 0.01, 1.0
Pair = tuple[list[int], list[int]]
Batch = tuple[Tensor, Tensor, Tensor]
"""Source with its end mark (B, S), target behind a begin mark and target with its end mark, (B, T) each."""


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


class Product(torch.autograd.Function):
    """x weight^T + bias in fp32 by oneDNN, which is twice as fast as MKL on processors that are not Intel's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(N, I) and (O, I) to (N, O)."""
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The larger side of the weight's gradient goes second."""
        x, weight = ctx.saved_tensors
        g = grads[0]
        is_wide = weight.shape[0] > weight.shape[1]
        by_weight = _onednn(x.T, g.T).T if is_wide else _onednn(g.T, x.T)
        return _onednn(g, weight.T), by_weight, g.sum(0) if ctx.has_bias else None


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., I) to (..., O)."""
    if x.dtype != torch.float32 or x.device.type != "cpu" or IS_INTEL:
        return F.linear(x, weight, bias)
    out: Tensor = Product.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """`linear` with weights of its own."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        return linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """Self-attention with one product for all three, or attention to a memory with two."""

    def __init__(self, width: int, heads: int, *, is_self: bool) -> None:
        super().__init__()
        self.heads, self.is_self = heads, is_self
        self.query = Linear(width, 3 * width if is_self else width)
        self.memory = None if is_self else Linear(width, 2 * width)
        self.out = Linear(width, width)

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
        self.inner, self.outer = Linear(width, inner), Linear(inner, width)
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

    positions: Tensor

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
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.apply(initialise)

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
        logits = linear(hidden.index_select(0, rows), self.embedding.weight)
        return F.cross_entropy(logits, labels.flatten().index_select(0, rows), reduction="sum", label_smoothing=0.1)


def initialise(module: nn.Module) -> None:
    """Xavier-uniform matrices, those that share a product each by itself, and zero biases."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Attention):
        for fused in filter(None, (module.query, module.memory)):
            for matrix in fused.weight.detach().view(-1, fused.in_features, fused.in_features):
                nn.init.xavier_uniform_(matrix)


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


def tensors(batch: Sequence[Pair]) -> Batch:
    """Pad, with begin and end marks."""
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
    updates: int = 0
    tokens: int = 0
    filled: int = 0
    padded: int = 0

    def add(self, batch: Batch) -> None:
        """Of one update."""
        source, _, labels = batch
        count = int((labels != PAD).sum())
        self.updates += 1
        self.tokens += count
        self.filled += count + int((source != PAD).sum())
        self.padded += source.numel() + labels.numel()

    def figures(self) -> dict[str, float]:
        """Rates from the start until now."""
        seconds = time.perf_counter() - self.start
        return {
            "tokens_per_second": self.tokens / seconds,
            "seconds_per_update": seconds / self.updates,
            "padding": 1 - self.filled / self.padded,
            "padded_per_update": self.padded / self.updates,
        }


class Keeper:
    """Writes weights every so many updates, and notes when they were reached by a clock that stands still meanwhile."""

    def __init__(self, folder: str, every: int) -> None:
        self.folder, self.every = Path(folder), every
        self.paused = 0.0
        self.kept: list[dict[str, Any]] = []

    def keep_if_due(self, update: int, model: nn.Module, masters: Masters) -> None:
        """fp32 weights by the model's names, after an update."""
        if self.every == 0 or update % self.every:
            return
        begin = time.time()
        file = self.folder / f"{update}.pt"
        torch.save(dict(zip(dict(model.named_parameters()), masters.masters, strict=True)), file)
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
    keep_every: int = 0,
    folder: str = "",
) -> dict[str, Any]:
    """Train, and measure from the update `warm_up` on.

    Args:
        pieces: a .npz of ids: source, target, and where each sentence of either ends.
        sizes: of the model.
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
    stream = endless(read_pairs(Path(pieces)), budget, random.Random(seed))
    keeper = Keeper(folder, keep_every)
    losses, tally, first = [], Tally(), 0.0
    for update in range(1, updates + 1):
        if update == warm_up + 1:
            tally = Tally()
        batch = next(stream)
        lr = rate(update, peak=peak, warmup=warmup_updates, last=updates)
        losses.append(train_on(batch, model, masters, optimizer, lr))
        tally.add(batch)
        if update == 1:
            first = time.time()
        keeper.keep_if_due(update, model, masters)
    return {
        **tally.figures(),
        "peak_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "first_update_at": first,
        "losses": [losses[0], losses[-1]],
        "kept": keeper.kept,
        "version": torch.__version__,
    }


def read_pairs(path: Path) -> list[Pair]:
    """What `train.py` wrote."""
    arrays = np.load(path)
    sides = [
        [ids.tolist() for ids in np.split(arrays[side], arrays[f"{side}_ends"][:-1])] for side in ("source", "target")
    ]
    return list(zip(*sides, strict=True))
