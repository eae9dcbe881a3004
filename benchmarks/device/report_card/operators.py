"""Single operators of the model by their plain implementations and by ours."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.device import kernels
from benchmarks.device.budget_batches import LENGTH_MULTIPLE
from benchmarks.device.kernels import SMALL, Sizes
from benchmarks.device.work import Figures
from data_pipeline.stream.batch import round_up
from model.kernels.cuda.ways import WAYS, packed_attention, why_not
from model.layout import LayoutKind, Side
from trainer.ranks.process import tune_process

REPETITIONS = 20


def ours(*, work: str, device: str, small: bool = False) -> Figures:
    """Each kernel of `benchmarks.device.kernels`: its error in bf16, and its milliseconds beside plain torch."""
    place = _place(device)
    sizes, repetitions = (SMALL, 1) if small else (Sizes(), REPETITIONS)
    return {
        "kernels": [kernels.measure(k, device=place, repetitions=repetitions) for k in kernels.kernels(sizes, place)]
    }


def _place(device: str) -> torch.device:
    """The device, in a process that computes as the trainer's do."""
    tune_process()
    torch.manual_seed(1)
    return torch.device(device)


def vocabularies(*, work: str, device: str, sizes: Sequence[int], tokens: int, width: int) -> Figures:
    """The output layer and its loss, forward and backward, by the size of the vocabulary."""
    place = _place(device)
    found = []
    for vocab in sizes:
        kernel = kernels.loss_kernel(Sizes(width=width, vocab=vocab), tokens, place)
        row = kernels.measure(kernel, device=place, repetitions=5)
        found.append(row | {"kernel": f"loss of {tokens:,} tokens, {vocab:,} pieces"})
        del kernel
    return {"kernels": found}


def norm_backward(*, work: str, device: str, widths: Sequence[int], tokens: int) -> Figures:
    """The backward pass of bias, dropout, residual and norm alone."""
    place = _place(device)
    side = kernels.packed_side(torch.full((tokens // 32,), 32), place)
    found = []
    for width in widths:
        kernel = kernels.residual_kernel(Sizes(width=width), side, place, way=kernels.backward_alone)
        row = kernels.measure(kernel, device=place, repetitions=REPETITIONS)
        # at least: the gradient and the saved sums are read, the gradients of both inputs are written, in 16 bits
        moved = 4 * len(side.places) * width * 2
        found.append(row | {"kernel": f"norm backward, {tokens:,} x {width:,}", "moved_gb": moved / 1e9})
    return {"kernels": found}


def attention(*, work: str, device: str, rows: int, length: int, heads: int, width: int) -> Figures:
    """Self-attention of equal rows, forward and backward in bf16: padded by SDPA, and packed in each way.

    Args:
        work: not used.
        device: cuda or cpu.
        rows, length: their number, and tokens of each.
        heads, width: their number, and features of each.
    """
    place = _place(device)
    side = kernels.packed_side(torch.full((rows,), length), place)
    q, k, v = (kernels.leaf(rows * length, heads, width, device=place) for _ in range(3))
    ways = _ways(q, k, v, side, rows=rows, length=length)
    expected = [x.float() for x in ways["padded"]()]
    found: list[Figures] = []
    for name, way in ways.items():
        why = "" if name == "padded" else why_not(name, place, torch.bfloat16, width)
        if why:
            found.append({"way": name, "skipped": why})
            continue
        try:
            off = max(float((a.float() - b).abs().max() / b.abs().max()) for a, b in zip(way(), expected, strict=True))
            cost = kernels.cost(way, place, REPETITIONS)
        except RuntimeError as error:  # the others are worth having all the same
            found.append({"way": name, "skipped": f"failed: {str(error).splitlines()[0]}"})
            continue
        found.append(
            {"way": name, "off": off, "ms": cost.milliseconds, "waited_ms": cost.waited, "mib": cost.mebibytes}
        )
    return {"attention": found, "rows": rows, "length": length, "heads": heads, "width": width}


def _ways(q: Tensor, k: Tensor, v: Tensor, side: Side, *, rows: int, length: int) -> dict[LayoutKind, kernels.Pass]:
    """Packed rows (N, H, K) in, packed rows out; the padded one pads them to a multiple of 8, as the stream does."""
    scale, longest = q.shape[-1] ** -0.5, round_up(length, LENGTH_MULTIPLE)
    bias = torch.zeros(rows, 1, 1, longest, dtype=q.dtype, device=q.device)
    bias[..., length:] = -1e9

    def padded(x: Tensor) -> Tensor:
        return F.pad(x.view(rows, length, *x.shape[1:]), (0, 0, 0, 0, 0, longest - length)).transpose(1, 2)

    def sdpa() -> Tensor:
        out = F.scaled_dot_product_attention(padded(q), padded(k), padded(v), bias, scale=scale)
        return out.transpose(1, 2)[:, :length].flatten(0, 1)

    packed = functools.partial(packed_attention, query=q, key=k, value=v, queries=side, keys=side)
    ways: dict[LayoutKind, Callable[[], Tensor]] = {"padded": sdpa}
    ways |= {way: functools.partial(packed, way, is_causal=False, scale=scale) for way in WAYS}
    return {name: kernels.differentiated(way, q, k, v) for name, way in ways.items()}
