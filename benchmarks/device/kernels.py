"""Correctness, speed-up and memory of each kernel in `model/kernels/cuda`, against plain implementations.

    python -m benchmarks.device.kernels

Forward and backward in bf16, with the sizes of `vaswani_big`. Without a GPU (with `--small`) the plain implementations
run instead of the kernels: that only tests this program; its times mean nothing.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.common.measure import parser, print_table
from benchmarks.device.profiling import profiled
from model.dropout import Dropout
from model.feed_forward import FeedForward
from model.kernels import use_kernels
from model.kernels.cuda import dropout, residuals
from model.kernels.cuda.ways import WAYS, packed_attention, plain_attention
from model.layout import LayoutKind, Side
from model.loss import CrossEntropy, OutputLayer

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
    side = packed_side(lengths, device)
    num_tokens = int(lengths.sum())
    return [
        loss_kernel(sizes, num_tokens, device),
        residual_kernel(sizes, side, device),
        _dropout(sizes, side, device),
        _feed_forward(sizes, num_tokens, device),
        *(_attention(way, sizes, side, lengths, device) for way in WAYS),
    ]


def measure(kernel: Kernel, *, device: torch.device, repetitions: int) -> dict[str, Any]:
    """A row of the table: the largest error, and seconds and bytes of the kernel and of the plain path."""
    pairs = zip(kernel.ours(), kernel.twin(), strict=True)
    off = max(float((a.float() - b.float()).abs().max() / b.float().abs().max().clamp_min(1e-9)) for a, b in pairs)
    costs = {name: cost(way, device, repetitions) for name, way in (("plain", kernel.plain), ("ours", kernel.ours))}
    return {
        "kernel": kernel.name,
        "off": off,
        "right": off <= TOLERANCE,
        "speed_up": costs["plain"].milliseconds / costs["ours"].milliseconds,
        **{f"{name}_ms": found.milliseconds for name, found in costs.items()},
        **{f"{name}_waited_ms": found.waited for name, found in costs.items()},
        **{f"{name}_mib": found.mebibytes for name, found in costs.items()},
    }


@dataclass(kw_only=True, frozen=True)
class Cost:
    """Of one pass."""

    milliseconds: float
    """In which a kernel ran; on a CPU as `waited`."""
    waited: float
    """Milliseconds from the first launch until the device is done: where launches take longer, theirs. A median."""
    mebibytes: float
    """Peak memory beyond what was allocated before."""


def cost(way: Pass, device: torch.device, repetitions: int) -> Cost:
    """Time and memory of a pass."""
    is_gpu = device.type == "cuda"
    wait: Callable[[], None] = torch.cuda.synchronize if is_gpu else lambda: None
    way()
    wait()
    before = torch.cuda.memory_allocated() if is_gpu else 0
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        way()
        wait()
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() - before if is_gpu else 0
    waited = statistics.median(times)
    busy = profiled(way, repetitions=repetitions).device_seconds if is_gpu else None
    return Cost(milliseconds=1e3 * (waited if busy is None else busy), waited=1e3 * waited, mebibytes=peak / 2**20)


def differentiated(function: Callable[..., Tensor], *leaves: Tensor) -> Pass:
    """A pass that returns the result of a function and the gradients of the leaves."""
    grads: list[Tensor] = []

    def way() -> list[Tensor]:
        out = function()
        if not grads:
            generator = torch.Generator(out.device).manual_seed(3)
            grads.append(torch.randn(out.shape, generator=generator, device=out.device).to(out.dtype))
        return [out.detach(), *torch.autograd.grad(out, leaves, grads[0])]

    return way


def backward_alone(function: Callable[..., Tensor], *leaves: Tensor) -> Pass:
    """A pass that returns the gradients of the leaves; the forward pass is made once, here."""
    out = function()
    grad = torch.randn(out.shape, generator=torch.Generator(out.device).manual_seed(3), device=out.device).to(out.dtype)
    return lambda: list(torch.autograd.grad(out, leaves, grad, retain_graph=True))


def leaf(*shape: int, device: torch.device) -> Tensor:
    """Random numbers in bf16 that need a gradient."""
    return torch.randn(shape, device=device).to(torch.bfloat16).requires_grad_()


def packed_side(lengths: Tensor, device: torch.device) -> Side:
    """The `Side` of packed rows with these lengths."""
    pairs = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    positions = torch.cat([torch.arange(int(n)) for n in lengths])
    places = torch.stack([torch.full_like(pairs, 5), torch.zeros_like(pairs), pairs, positions], 1)
    bounds = F.pad(lengths.cumsum(0), (1, 0))
    return Side(places=places.int().to(device), bounds=bounds.int().to(device), longest=int(lengths.max()))


def loss_kernel(sizes: Sizes, num_tokens: int, device: torch.device) -> Kernel:
    """The output layer and its loss."""
    hidden, targets = leaf(num_tokens, sizes.width, device=device), torch.randint(0, sizes.vocab, (num_tokens,))
    weight = (torch.randn(sizes.vocab, sizes.width) * sizes.width**-0.5).to(device, torch.bfloat16)

    def way(kind: str) -> Pass:
        layer = OutputLayer(sizes.width, sizes.vocab, padding_id=0).to(device, torch.bfloat16)
        layer.weight.data.copy_(weight)
        use_kernels(layer, device, kind)
        there = targets.to(device)
        return differentiated(lambda: layer(hidden, there, CrossEntropy(0.1))[0], hidden, layer.weight)

    return Kernel(name="loss", ours=way("cuda"), twin=way("plain"), plain=way("plain"))


def residual_kernel(
    sizes: Sizes, side: Side, device: torch.device, *, way: Callable[..., Pass] = differentiated
) -> Kernel:
    """Bias, dropout, residual connection and norm; `way` makes a pass of a function and its leaves."""
    shape = (len(side.places), sizes.width)
    x, y, bias = leaf(*shape, device=device), leaf(*shape, device=device), leaf(sizes.width, device=device)
    norm = nn.LayerNorm(sizes.width).to(device, torch.bfloat16)
    leaves = (x, y, bias, norm.weight, norm.bias)
    apply: Any = residuals.ResidualNorm.apply

    def ours() -> Tensor:
        found: Tensor = apply(x, y, bias, norm.weight, norm.bias, side.places, 3, DROPOUT, norm.eps)[1]
        return found

    def twin() -> Tensor:
        out: Tensor = norm(x + _same_mask(y + bias, side, 3))
        return out

    def plain() -> Tensor:
        out: Tensor = norm(x + F.dropout(y + bias, DROPOUT))
        return out

    ways = [way(function, *leaves) for function in (ours, twin, plain)]
    return Kernel(name="bias, dropout, residual, norm", ours=ways[0], twin=ways[1], plain=ways[2])


def _same_mask(x: Tensor, side: Side, site: int) -> Tensor:
    """Dropout with the kernel's mask, differentiable by autograd."""
    return x * dropout._plain(torch.ones_like(x), side.places, site, DROPOUT).detach()


def _dropout(sizes: Sizes, side: Side, device: torch.device) -> Kernel:
    x = leaf(len(side.places), sizes.inner, device=device)
    functions: list[Callable[[], Tensor]] = [
        lambda: torch.ops.zeromt.drop(x, side.places, 2, DROPOUT),
        lambda: _same_mask(x, side, 2),
        lambda: Dropout(DROPOUT).train()(x),
    ]
    ours, twin, plain = (differentiated(function, x) for function in functions)
    return Kernel(name="dropout", ours=ours, twin=twin, plain=plain)


def _feed_forward(sizes: Sizes, num_tokens: int, device: torch.device) -> Kernel:
    x = leaf(num_tokens, sizes.width, device=device)
    made = FeedForward(sizes.width, sizes.inner, F.relu, 0.0).to(device, torch.bfloat16)

    def way(kind: str) -> Pass:
        module = FeedForward(sizes.width, sizes.inner, F.relu, 0.0).to(device, torch.bfloat16)
        module.load_state_dict(made.state_dict())
        if kind == "cuda":
            use_kernels(module, device, kind)
            residuals.fuse(module, "inner", "outer")
        return differentiated(lambda: module(x), x, *module.parameters())

    return Kernel(name="feed-forward with ReLU", ours=way("cuda"), twin=way("plain"), plain=way("plain"))


def _attention(way: LayoutKind, sizes: Sizes, side: Side, lengths: Tensor, device: torch.device) -> Kernel:
    heads, each = sizes.heads, sizes.width // sizes.heads
    q, k, v = (leaf(len(side.places), heads, each, device=device) for _ in range(3))
    a, b, c = (leaf(len(lengths), heads, sizes.longest, each, device=device) for _ in range(3))
    is_text = torch.arange(sizes.longest) < lengths[:, None]
    bias = torch.zeros(is_text.shape).masked_fill(~is_text, -1e9)[:, None, None].to(device, torch.bfloat16)
    scale = each**-0.5
    return Kernel(
        name=f"packed attention, {way}",
        ours=differentiated(lambda: packed_attention(way, q, k, v, side, side, is_causal=False, scale=scale), q, k, v),
        twin=differentiated(lambda: plain_attention(q, k, v, side, side, is_causal=False, scale=scale), q, k, v),
        plain=differentiated(lambda: F.scaled_dot_product_attention(a, b, c, bias, scale=scale), a, b, c),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 if a kernel is wrong."""
    options = parser(__doc__)
    options.add_argument("--small", action="store_true", help="small sizes, to test this program")
    options.add_argument("--repetitions", type=int, default=20, metavar="N")
    args = options.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = [
        measure(kernel, device=device, repetitions=args.repetitions)
        for kernel in kernels(SMALL if args.small else Sizes(), device)
    ]
    name = (
        torch.cuda.get_device_name() if device.type == "cuda" else "a CPU: plain implementations, so times mean nothing"
    )
    print_table(f"kernels in bf16, forward and backward, on {name}", [table_row(row) for row in found])
    return 0 if all(row["right"] for row in found) else 1


def table_row(row: dict[str, Any]) -> dict[str, str]:
    """A row of `measure` as text."""
    return {
        "kernel": row["kernel"],
        "right": f"{'yes' if row['right'] else 'NO'} ({row['off']:.1e})",
        "plain ms": f"{row['plain_ms']:.3f}",
        "ours ms": f"{row['ours_ms']:.3f}",
        "speed-up": f"{row['speed_up']:.2f}",
        "plain MiB": f"{row['plain_mib']:.1f}",
        "ours MiB": f"{row['ours_mib']:.1f}",
    }


if __name__ == "__main__":
    sys.exit(main())
