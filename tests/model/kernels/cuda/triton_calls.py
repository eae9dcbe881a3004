"""Triton's kernels under its interpreter, and compiled for GPUs that need not be there.

Tasks of processes of their own: the interpreter's variable must stand before triton is read.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

Case = tuple[int, int, str, float, float]
"""Pieces, rows, precision, smoothing, gradient scale."""
PAD = 0


def why_not() -> str | None:
    """Why the interpreter cannot run the kernels here; None if it can."""
    if (triton := find_spec("triton")) is None or triton.origin is None:
        return "triton is not installed"
    source = (Path(triton.origin).parent / "runtime" / "interpreter.py").read_text()
    try:
        int(np.ones(1))
    except TypeError:
        if "int(self.handle.data)" in source:
            return "this Triton's interpreter has no loops with this NumPy"
    return None


def losses(cases: list[Case]) -> list[dict[str, float]]:
    """How far the kernel is from `F.cross_entropy` in fp64 of the same logits, and what it does beyond the pieces.

    Of each case, without scales of rows and with some.
    """
    from model.kernels.cuda.triton_kernels import cross_entropy

    errors = []
    for vocab, rows, precision, smoothing, scale in cases:
        cross_entropy.MAX_COLUMNS = 8192 if vocab < 100_000 else 1 << 17  # the interpreter takes its time by blocks
        logits, targets = logits_and_targets(vocab, rows, getattr(torch, precision))
        factors = torch.rand(rows, generator=torch.Generator().manual_seed(rows)).mul_(4.0)
        factors[2] = 0.0
        of_pieces = logits[:, :vocab].double().requires_grad_()
        nll = F.cross_entropy(of_pieces.detach(), targets, reduction="sum", ignore_index=PAD)
        each = F.cross_entropy(of_pieces, targets, reduction="none", label_smoothing=smoothing, ignore_index=PAD)
        for scales in (None, factors):
            loss = (each if scales is None else each * scales).sum()
            [wanted] = torch.autograd.grad(loss * scale, of_pieces, retain_graph=True)
            wanted = wanted.float().masked_fill_((targets == PAD)[:, None], 0.0)
            given, sums = logits.clone(), torch.full((2, rows), 7.0)
            cross_entropy.cross_entropy(given, targets, sums, vocab, PAD, smoothing, True, torch.tensor(scale), scales)
            got = given[:, :vocab]
            errors.append(
                {
                    "loss": float((sums[0].double().sum() - loss.detach()).abs() / loss.detach()),
                    "nll": float((sums[1].double().sum() - nll).abs() / nll),
                    "gradient": float((got.float() - wanted).abs().max()) if got.itemsize == 4 else 0.0,
                    "units": units(got, wanted.to(got.dtype)) if got.itemsize == 2 else 0.0,
                    "beyond": float(given[:, vocab:].abs().sum()),
                    "padding": float(got[targets == PAD].abs().sum() + sums[:, targets == PAD].abs().sum()),
                }
            )
    return errors


def logits_and_targets(vocab: int, rows: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of a padded vocabulary: no numbers stand beyond the pieces, nor in a row whose target is padding."""
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn(rows, -(-vocab // 64) * 64, generator=generator) * 3
    targets = torch.randint(1, vocab, (rows,), generator=generator)
    targets[0], targets[3] = vocab - 1, PAD
    logits[:, vocab:] = logits[3] = float("nan")
    logits[1, 5] = 60.0  # all of a row's probability in one place
    return logits.to(dtype), targets


def units(got: Tensor, wanted: Tensor) -> float:
    """The most that 16-bit numbers are apart, in units in the last place."""
    ordered = [x.view(torch.int16).int() for x in (got, wanted)]
    ordered = [torch.where(x < 0, -(x & 0x7FFF), x) for x in ordered]
    return float((ordered[0] - ordered[1]).abs().max())


SIZES: list[tuple[Any, ...]] = [
    (5, 12, "float32", 0.3, True, True, False),
    (300, 32, "float32", 0.0, True, False, False),
    (7, 37, "float32", 0.5, False, True, True),
    (3, 512, "bfloat16", 0.1, True, True, True),
    (3, 1030, "bfloat16", 0.0, False, False, False),
    (2, 64, "float16", 0.1, True, True, False),
]
"""Rows, width, precision, dropout, whether there are a norm's bias, a linear bias and a gradient of the sum."""


def calls(sizes: list[tuple[Any, ...]]) -> list[tuple[str, tuple[Any, ...]]]:
    """Operators with Triton's kernels and their arguments."""
    from model.kernels.cuda import residual_norm

    draw, operators = torch.Generator().manual_seed(1), list[tuple[str, tuple[Any, ...]]]()
    for rows, width, precision, p, has_bias, has_linear_bias, has_grad_summed in sizes:
        shapes = [(rows, width)] * 4 + [(width,)] * 3
        x, y, grad_normed, grad_summed, linear_bias, weight, bias = (
            torch.randn(shape, generator=draw).to(getattr(torch, precision)) for shape in shapes
        )
        tokens = torch.randint(-(2**31), 2**31, (rows, 4), generator=draw).int()
        dropout = tokens if p else None, 7, p
        given = x, y, linear_bias if has_linear_bias else None, weight, bias if has_bias else None, *dropout, 1e-5
        summed, _, mean, rstd = residual_norm.residual_norm(*given)
        kept = grad_normed, grad_summed if has_grad_summed else None, summed, mean, rstd, weight, *dropout, has_bias
        operators += [("residual_norm", given), ("residual_norm_backward", kept), ("relu_backward", (x, y.relu()))]
        if rows < 100:
            operators += [("drop", (x, tokens, 7, p or 0.5)), ("drop", (x[:, :1], tokens, 7, 0.1))]
    for blocks in ([0], [1], [0, 1], [1, 2], [3]):  # of 16, of which the first or a later one holds nothing but -inf
        logits = torch.randn(2, 4, 16, generator=draw)
        logits[0, blocks] = float("-inf")
        targets = torch.tensor([next(16 * block for block in range(4) if block not in blocks), 35])
        scales = (torch.tensor(2.0), torch.tensor([0.5, 3.0])) if blocks == [1] else (None, None)
        rest = targets, torch.zeros(2, 2), 64, PAD, 0.0, blocks != [3], *scales
        operators.append(("cross_entropy_", (logits.flatten(1), *rest)))
    return operators


def twins() -> list[tuple[str, list[Tensor], list[Tensor]]]:
    """What Triton's and the plain implementation of an operator give, and leave of their arguments."""
    from model.kernels.cuda.triton_kernels import cross_entropy, residual_norm_backward

    residual_norm_backward.LEAST_ROWS = 1  # many programs, of few rows
    cross_entropy.MAX_COLUMNS = 16
    return [
        (name, _results(by_triton(name), args), _results(getattr(torch.ops.zeromt, name), args))
        for name, args in calls(SIZES)
    ]


def by_triton(name: str) -> Callable[..., Any]:
    """The operator's implementation."""
    name = name.rstrip("_")
    implementation: Callable[..., Any] = getattr(import_module(f"model.kernels.cuda.triton_kernels.{name}"), name)
    return implementation


def _results(function: Callable[..., Any], args: tuple[Any, ...]) -> list[Tensor]:
    given = [x.clone() if isinstance(x, Tensor) else x for x in args]
    return [x for x in tree_leaves((function(*given), given)) if isinstance(x, Tensor) and x.is_floating_point()]


TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


def launches() -> list[tuple[Any, dict[str, Any]]]:
    """Kernels with their arguments and options, with all that is optional and with none."""
    from triton.runtime.jit import JITFunction

    launched: list[tuple[Any, dict[str, Any]]] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launched.append((kernel, {**dict(zip(kernel.arg_names, args, strict=False)), **options}))

    JITFunction.run = run
    for name, args in calls(SIZES[3:5]):
        by_triton(name)(*args)
    return launched


def cubins(capability: int) -> dict[str, int]:
    """Bytes of machine code of every kernel that is launched, for a GPU that need not be there.

    Args:
        capability: of the GPU: 90 is an H100.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sizes: dict[str, int] = {}
    for kernel, given in launches():
        options = {"num_warps": given.pop("num_warps", 4)}
        types = {name: _type_of(name, value) for name, value in given.items()}
        constants = {name: given[name] for name, of in types.items() if of == "constexpr"}
        name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__} {types} {constants}"
        if name not in sizes:
            places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
            source = ASTSource(fn=kernel, signature=types, constexprs=places)
            code = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
            sizes[name] = len(code.asm["cubin"])
    return sizes


def _type_of(name: str, value: Any) -> str:
    if value is None or name.isupper():
        return "constexpr"
    if isinstance(value, Tensor):
        return TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32" if value < 2**31 else "i64"


def specialised() -> set[str]:
    """Arguments for whose values, or for where they begin in memory, Triton compiles a kernel anew."""
    parameters = [p for kernel, _ in launches() for p in kernel.params if not p.is_constexpr]
    return {p.name for p in parameters if not (p.do_not_specialize or p.do_not_specialize_on_alignment)}
