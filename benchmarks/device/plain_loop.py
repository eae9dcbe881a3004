"""Baselines in plain torch on a GPU: the matmul rate of the card, and a hand-written training loop.

The loop is `training.plain_loop` with what is fast on a GPU: fused attention, torch's own dropout, batches padded and
pinned before timing starts, and no host waits. Its model is post-norm, as in Vaswani et al. (2017). Everything also
runs on a CPU, for testing.
"""

import itertools
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.training import plain_loop, plain_model
from benchmarks.training.plain_loop import CLIP_NORM, Batch, Masters, Tally
from benchmarks.training.plain_model import PAD

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""Source (B, S), target input (B, T), non-padding labels (N,), and their indices among B * T positions (N,)."""


class FusedAttention(plain_model.Attention):
    """`F.scaled_dot_product_attention` over the same projections."""

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """(B, L, D) to (B, L, D), attending to itself or to a memory (B, S, D).

        Args:
            x: hidden states.
            memory: None in self-attention.
            mask: (B, 1, 1, S), true where attention is allowed; None means causal.
        """
        if self.memory is None or memory is None:
            q, k, v = self.query(x).chunk(3, -1)
        else:
            q, (k, v) = self.query(x), self.memory(memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        out: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """norm(x + dropout(sublayer(x))) for two or three sub-layers."""

    def __init__(self, sizes: dict[str, Any], *, is_decoder: bool) -> None:
        super().__init__()
        width, heads, inner = sizes["d_model"], sizes["num_heads"], sizes["d_ff"]
        kinds = [True, False] if is_decoder else [True]
        self.attentions = nn.ModuleList([FusedAttention(width, heads, is_self=kind) for kind in kinds])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(len(kinds) + 1)])
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout, self.inner_dropout = nn.Dropout(sizes["dropout"]), nn.Dropout(sizes["activation_dropout"])

    def forward(
        self, x: Tensor, own_mask: Tensor | None, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        x = self.norms[0](x + self.dropout(self.attentions[0](x, None, own_mask)))
        if memory is not None:
            x = self.norms[1](x + self.dropout(self.attentions[1](x, memory, mask)))
        out: Tensor = self.norms[-1](x + self.dropout(self.outer(self.inner_dropout(F.relu(self.inner(x))))))
        return out


class Model(nn.Module):
    """Encoder and decoder with one matrix for both embeddings and the output."""

    positions: Tensor

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width = sizes["d_model"]
        self.embedding = nn.Embedding(sizes["vocab"], width)
        self.encoder = nn.ModuleList([Layer(sizes, is_decoder=False) for _ in range(sizes["encoder_layers"])])
        self.decoder = nn.ModuleList([Layer(sizes, is_decoder=True) for _ in range(sizes["decoder_layers"])])
        self.dropout = nn.Dropout(sizes["dropout"])
        self.register_buffer("positions", plain_model.sinusoids(1024, width))
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.apply(plain_model.initialise)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        out: Tensor = self.dropout(x + self.positions[: ids.shape[1]])
        return out

    def forward(self, source: Tensor, target: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Label-smoothed cross-entropy summed over the labels; for shapes see `Inputs`."""
        mask = (source != PAD)[:, None, None]
        memory, x = self.embed(source), self.embed(target)
        for layer in self.encoder:
            memory = layer(memory, mask)
        for layer in self.decoder:
            x = layer(x, None, memory, mask)
        logits = F.linear(x.flatten(0, 1).index_select(0, rows), self.embedding.weight)
        return F.cross_entropy(logits.float(), labels, reduction="sum", label_smoothing=0.1)


def train(
    *,
    pieces: str,
    sizes: dict[str, Any],
    device: str,
    dtype: str,
    updates: int,
    warm_up: int,
    budget: int,
    peak: float,
    warmup_updates: int,
) -> dict[str, Any]:
    """Train, and time the updates after the first `warm_up`.

    Args:
        pieces: an .npz file with the ids of both sides, and where each sentence ends.
        sizes: sizes of the model.
        device: cuda or cpu.
        dtype: dtype of the model; master weights are fp32.
        updates: total number of updates.
        warm_up: number of untimed updates.
        budget: padded tokens of an update, both sides together.
        peak: highest learning rate.
        warmup_updates: updates until the highest learning rate.
    """
    torch.manual_seed(1)
    torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN plans for every new shape
    model = Model(sizes).to(device).train()
    masters = Masters(model, getattr(torch, dtype))
    optimizer = plain_loop.adamw(masters.masters, peak)
    stream = plain_loop.endless(plain_loop.read_pairs(Path(pieces)), budget, random.Random(1))
    ready = [(batch, inputs(batch, device)) for batch in itertools.islice(stream, updates)]
    losses, tally = [], Tally()
    for update, (batch, host) in enumerate(ready, start=1):
        if update == warm_up + 1:
            wait(device)
            tally = Tally()
        source, target, labels, rows = (t.to(device, non_blocking=True) for t in host)
        loss = model(source, target, labels, rows) / len(labels)
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = plain_loop.rate(update, peak=peak, warmup=warmup_updates, last=updates)
        masters.step(optimizer, CLIP_NORM)
        losses.append(loss.detach())
        tally.add(batch)
    wait(device)
    return {
        **tally.figures(),
        **peaks(device),
        "losses": [float(losses[0]), float(losses[-1])],
        "version": torch.__version__,
    }


def inputs(batch: Batch, device: str) -> Inputs:
    """The inputs of the model, in pinned memory for asynchronous copies to the GPU."""
    source, target, padded = batch
    rows = (padded.flatten() != PAD).nonzero()[:, 0]
    found = (source, target, padded.flatten()[rows], rows)
    if device == "cpu":
        return found
    source, target, labels, rows = (t.pin_memory() for t in found)
    return source, target, labels, rows


def matrix_rate(*, device: str, sizes: Sequence[int], repeats: int = 20, rounds: int = 3) -> dict[str, Any]:
    """The best FLOP/s of square bf16 matmuls after warm-up, and the name and memory of the card.

    Args:
        device: cuda or cpu.
        sizes: widths of the matrices.
        repeats: matmuls in one timing.
        rounds: timings per size, of which the best counts.
    """
    rates = {}
    for size in sizes:
        left, right = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
        out = torch.matmul(left, right)
        seconds = [_matmul_seconds(left, right, out, repeats) for _ in range(1 + rounds)][1:]  # the first is warm-up
        rates[size] = 2 * size**3 * repeats / min(seconds)
    card = torch.cuda.get_device_properties(0) if device == "cuda" else None
    return {
        "name": card.name if card else "CPU",
        "memory": card.total_memory if card else None,
        "rates": rates,
        "best": max(rates.values()),
        "version": torch.__version__,
    }


def _matmul_seconds(left: Tensor, right: Tensor, out: Tensor, repeats: int) -> float:
    """Seconds of `repeats` matmuls, by the device's clock on a GPU."""
    if left.device.type == "cpu":
        begin = time.perf_counter()
        for _ in range(repeats):
            torch.matmul(left, right, out=out)
        return time.perf_counter() - begin
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    for _ in range(repeats):
        torch.matmul(left, right, out=out)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1000


def wait(device: str) -> None:
    """Wait until the device has finished all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def peaks(device: str) -> dict[str, int | None]:
    """Peak allocated and reserved bytes of torch's allocator on the current GPU; None on a CPU."""
    if device == "cpu":
        return {"peak_allocated": None, "peak_reserved": None}
    return {"peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}
