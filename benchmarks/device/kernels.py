"""Correctness, speed-up and memory of each kernel in `model/kernels/cuda`, against plain implementations.

Forward and backward in bf16, with the sizes of `vaswani_big`. On a CPU the plain implementations run instead of the
kernels: that only tests this program; its times mean nothing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.device.profiling import profiled
from model.kernels import use_kernels
from model.kernels.cuda import dropout, residuals
from model.kernels.cuda.sublayers import ResidualNormArguments, feed_forward_and_norm
from model.kernels.cuda.ways import WAYS, packed_attention, plain_attention
from model.layout import LayoutKind, Side
from model.loss import CrossEntropy, OutputLayer
from model.sublayers import Dropout

TOLERANCE = 2e-2
"""Largest error relative to the largest element of each result, in bf16."""
DROPOUT = 0.1
Pass = Callable[[], list[Tensor]]


@dataclass(kw_only=True, frozen=True)
class Sizes:
    """Sizes of the inputs."""

    rows: int = 64
    longest: int = 64
    """Tokens of the longest row; the shortest has half as many."""
    width: int = 1024
    inner: int = 4096
    heads: int = 16
    vocab: int = 37_000


SMALL = Sizes(rows=3, longest=6, width=32, inner=48, heads=2, vocab=101)


@dataclass(kw_only=True, frozen=True)
class Kernel:
    """Three implementations of the same function and its gradients."""

    name: str
    ours: Pass
    twin: Pass
    """The plain implementation with the same random numbers, for correctness."""
    plain: Pass
    """The code path without these kernels, with torch's random numbers, for speed and memory."""


def kernels(sizes: Sizes, device: torch.device) -> list[Kernel]:
    """All kernels to measure."""
    torch.manual_seed(1)
    lengths = torch.linspace(sizes.longest // 2, sizes.longest, sizes.rows).long()
    side = _packed_side(lengths, device)
    num_tokens = int(lengths.sum())
    return [
        _loss(sizes, num_tokens, device),
        _residual(sizes, side, device),
        _dropout(sizes, side, device),
        _feed_forward(sizes, side, device),
        *(_attention(way, sizes, side, lengths, device) for way in WAYS),
    ]


def measure(kernel: Kernel, *, device: torch.device, repetitions: int) -> dict[str, Any]:
    """A row of the table: the largest error, and milliseconds and MiB of the kernel and of the plain path."""
    pairs = zip(kernel.ours(), kernel.twin(), strict=True)
    error = max(float((a.float() - b.float()).abs().max() / b.float().abs().max().clamp_min(1e-9)) for a, b in pairs)
    plain_ms, plain_mib = cost(kernel.plain, device, repetitions)
    ours_ms, ours_mib = cost(kernel.ours, device, repetitions)
    return {
        "kernel": kernel.name,
        "right": "yes" if error <= TOLERANCE else "NO",
        "error": error,
        "plain ms": plain_ms,
        "ours ms": ours_ms,
        "speed-up": plain_ms / ours_ms,
        "plain MiB": plain_mib,
        "ours MiB": ours_mib,
    }


def cost(way: Pass, device: torch.device, repetitions: int) -> tuple[float, float]:
    """Milliseconds of a pass in which a kernel ran, and its peak memory in MiB beyond what was allocated before.

    On a CPU, where this only tests the program, milliseconds until the pass is done, and no memory.
    """
    if device.type == "cpu":
        start = time.perf_counter()
        way()
        return 1e3 * (time.perf_counter() - start), 0.0
    way()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    way()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    return 1e3 * profiled(way, repetitions=repetitions)[0], peak / 2**20


def _differentiated(function: Callable[..., Tensor], *leaves: Tensor) -> Pass:
    """A pass that returns the result of a function and the gradients of the leaves."""
    grads: list[Tensor] = []

    def way() -> list[Tensor]:
        out = function()
        if not grads:
            generator = torch.Generator(out.device).manual_seed(3)
            grads.append(torch.randn(out.shape, generator=generator, device=out.device).to(out.dtype))
        return [out.detach(), *torch.autograd.grad(out, leaves, grads[0])]

    return way


def _leaf(*shape: int, device: torch.device) -> Tensor:
    """Random numbers in bf16 that need a gradient."""
    return torch.randn(shape, device=device).to(torch.bfloat16).requires_grad_()


def _packed_side(lengths: Tensor, device: torch.device) -> Side:
    """The `Side` of packed rows with these lengths."""
    pairs = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    positions = torch.cat([torch.arange(int(n)) for n in lengths])
    places = torch.stack([torch.full_like(pairs, 5), torch.zeros_like(pairs), pairs, positions], 1)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    return Side(places=places.int().to(device), bounds=bounds.int().to(device), longest=int(lengths.max()))


def _loss(sizes: Sizes, num_tokens: int, device: torch.device) -> Kernel:
    hidden, targets = _leaf(num_tokens, sizes.width, device=device), torch.randint(0, sizes.vocab, (num_tokens,))
    weight = (torch.randn(sizes.vocab, sizes.width) * sizes.width**-0.5).to(device, torch.bfloat16)

    def way(kind: str) -> Pass:
        layer = OutputLayer(sizes.width, sizes.vocab, padding_id=0).to(device, torch.bfloat16)
        layer.weight.data.copy_(weight)
        use_kernels(layer, device, kind)
        there = targets.to(device)
        return _differentiated(lambda: layer(hidden, there, CrossEntropy(0.1))[0], hidden, layer.weight)

    return Kernel(name="loss", ours=way("cuda"), twin=way("plain"), plain=way("plain"))


def _residual(sizes: Sizes, side: Side, device: torch.device) -> Kernel:
    shape = (len(side.places), sizes.width)
    x, y = _leaf(*shape, device=device), _leaf(*shape, device=device)
    norm = nn.LayerNorm(sizes.width).to(device, torch.bfloat16)
    leaves = (x, y, norm.weight, norm.bias)
    apply: Any = residuals.ResidualNorm.apply

    def ours() -> Tensor:
        out: Tensor = apply(x, y, None, norm.weight, norm.bias, side.places, 3, DROPOUT, norm.eps)[1]
        return out

    def twin() -> Tensor:
        out: Tensor = norm(x + _same_mask(y, side, 3))
        return out

    def plain() -> Tensor:
        out: Tensor = norm(x + F.dropout(y, DROPOUT))
        return out

    ways = [_differentiated(function, *leaves) for function in (ours, twin, plain)]
    return Kernel(name="dropout, residual, norm", ours=ways[0], twin=ways[1], plain=ways[2])


def _same_mask(x: Tensor, side: Side, site: int) -> Tensor:
    """Dropout with the kernel's mask, differentiable by autograd."""
    return x * dropout._plain(torch.ones_like(x), side.places, site, DROPOUT).detach()


def _dropout(sizes: Sizes, side: Side, device: torch.device) -> Kernel:
    x = _leaf(len(side.places), sizes.inner, device=device)
    functions: list[Callable[[], Tensor]] = [
        lambda: torch.ops.zeromt.drop(x, side.places, 2, DROPOUT),
        lambda: _same_mask(x, side, 2),
        lambda: Dropout(DROPOUT).train()(x),
    ]
    ours, twin, plain = (_differentiated(function, x) for function in functions)
    return Kernel(name="dropout", ours=ours, twin=twin, plain=plain)


def _feed_forward(sizes: Sizes, side: Side, device: torch.device) -> Kernel:
    """All of the sub-layer, in post-norm."""
    x = _leaf(len(side.places), sizes.width, device=device)
    inner, outer = nn.Linear(sizes.width, sizes.inner), nn.Linear(sizes.inner, sizes.width)
    norm = nn.LayerNorm(sizes.width)
    layers = [layer.to(device, torch.bfloat16) for layer in (inner, outer, norm)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]

    def ours() -> Tensor:
        out: Tensor = feed_forward_and_norm(ResidualNormArguments(None, 0, 0.0, norm.eps), x, None, *parameters)[1]
        return out

    def plain() -> Tensor:
        out: Tensor = norm(x + outer(F.relu(inner(x))))
        return out

    ways = [_differentiated(function, x, *parameters) for function in (ours, plain, plain)]
    return Kernel(name="feed-forward with ReLU, residual, norm", ours=ways[0], twin=ways[1], plain=ways[2])


def _attention(way: LayoutKind, sizes: Sizes, side: Side, lengths: Tensor, device: torch.device) -> Kernel:
    heads, each = sizes.heads, sizes.width // sizes.heads
    q, k, v = (_leaf(len(side.places), heads, each, device=device) for _ in range(3))
    a, b, c = (_leaf(len(lengths), heads, sizes.longest, each, device=device) for _ in range(3))
    is_text = torch.arange(sizes.longest) < lengths[:, None]
    bias = torch.zeros(is_text.shape).masked_fill(~is_text, -1e9)[:, None, None].to(device, torch.bfloat16)
    scale = each**-0.5
    return Kernel(
        name=f"packed attention, {way}",
        ours=_differentiated(lambda: packed_attention(way, q, k, v, side, side, is_causal=False, scale=scale), q, k, v),
        twin=_differentiated(lambda: plain_attention(q, k, v, side, side, is_causal=False, scale=scale), q, k, v),
        plain=_differentiated(lambda: F.scaled_dot_product_attention(a, b, c, bias, scale=scale), a, b, c),
    )
