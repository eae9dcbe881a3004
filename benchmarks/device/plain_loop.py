"""Baselines in plain torch on a GPU: the matmul rate of the card, and a hand-written training loop.

The loop is `training.plain_loop` with what is fast on a GPU: torch's own Transformer with fused attention, batches
padded and pinned before timing starts, and no host waits. Everything also runs on a CPU, for testing.
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


class Model(nn.Module):
    """torch's own Transformer, without dropout of attention weights, with one matrix for embeddings and output."""

    positions: Tensor

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width = sizes["d_model"]
        self.embedding = nn.Embedding(sizes["vocab"], width)
        self.layers = nn.Transformer(
            width,
            sizes["num_heads"],
            sizes["encoder_layers"],
            sizes["decoder_layers"],
            sizes["d_ff"],
            sizes["dropout"],
            batch_first=True,
        )
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.dropout = nn.Dropout(sizes["dropout"])
        self.register_buffer("positions", plain_model.sinusoids(1024, width))
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        out: Tensor = self.dropout(x + self.positions[: ids.shape[1]])
        return out

    def forward(self, source: Tensor, target: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """Label-smoothed cross-entropy summed over the labels; for shapes see `Inputs`."""
        is_padding, length = source == PAD, target.shape[1]
        future = torch.ones((length, length), dtype=torch.bool, device=target.device).triu(1)
        x = self.layers(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            tgt_is_causal=True,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
        )
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
        "peak": peak_gib(device),
        "losses": [float(losses[0]), float(losses[-1])],
        "version": torch.__version__,
    }


def inputs(batch: Batch, device: str) -> Inputs:
    """The inputs of the model, in pinned memory for asynchronous copies to the GPU."""
    source, target, padded = batch
    rows = (padded.flatten() != PAD).nonzero()[:, 0]
    tensors = (source, target, padded.flatten()[rows], rows)
    if device == "cpu":
        return tensors
    source, target, labels, rows = (t.pin_memory() for t in tensors)
    return source, target, labels, rows


def matrix_rate(*, device: str, sizes: Sequence[int], repeats: int = 20, rounds: int = 3) -> float:
    """The best FLOP/s of square bf16 matmuls after warm-up.

    Args:
        device: cuda or cpu.
        sizes: widths of the matrices.
        repeats: matmuls in one timing.
        rounds: timings per size; the best one counts.
    """
    best = 0.0
    for size in sizes:
        left, right = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
        out = torch.matmul(left, right)
        for _ in range(1 + rounds):
            wait(device)
            begin = time.perf_counter()
            for _ in range(repeats):
                torch.matmul(left, right, out=out)
            wait(device)
            best = max(best, 2 * size**3 * repeats / (time.perf_counter() - begin))
    return best


def wait(device: str) -> None:
    """Wait until the device has finished all its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_gib(device: str) -> float | None:
    """Peak GiB of torch's allocator on the current GPU; None on a CPU."""
    return None if device == "cpu" else torch.cuda.max_memory_allocated() / 2**30
