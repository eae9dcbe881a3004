"""Triton's kernels compiled for a GPU that need not be there, as a task of a process of its own."""

from typing import Any

BF16, FP32, INT = "*bf16", "*fp32", "i32"
Constants = dict[str, Any]
OF_ROWS = ("num_columns", "logits_stride")
"""Multiples of 16 by the padding of the vocabulary."""


def cubins(capability: int) -> dict[str, int]:
    """Bytes of machine code of every kernel, by its name and its constants.

    Args:
        capability: of the GPU: 90 is an H100.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    found = {}
    for kernel, types, constants, num_warps in _variants():
        signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places)
        target = GPUTarget("cuda", capability, 32)
        done = triton.compile(source, target=target, options={"num_warps": num_warps})
        found[f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__} {constants}"] = len(done.asm["cubin"])
    return found


def wide_loads(capability: int) -> list[int]:
    """Bytes that a thread of the loss's kernels reads at once at most, of a vocabulary that no power of two divides."""
    import re

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    found = []
    for kernel, types, constants, num_warps in _variants()[:2]:
        signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        aligned = [name for name in kernel.arg_names if signature[name][0] == "*" or name in OF_ROWS]
        hints = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=hints)
        done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": num_warps})
        loads = re.findall(r"ld\.global(?:\.v(\d))?\.b(\d+)", done.asm["ptx"])
        found += [int(times or 1) * int(bits) // 8 for times, bits in loads if bits != "64"]  # 64: the target
    return found


def specialised() -> list[str]:
    """Arguments for whose values, or for where they begin in memory, Triton compiles a kernel anew."""
    parameters = [p for kernel, *_ in _variants() for p in kernel.params if not p.is_constexpr]
    return [p.name for p in parameters if not (p.do_not_specialize or p.do_not_specialize_on_alignment)]


def _variants() -> list[tuple[Any, dict[str, str], Constants, int]]:
    """Kernels, the types of their arguments, constants, and warps: with all that is optional, and with none."""
    from model.kernels.cuda.triton_kernels import (
        cross_entropy,
        drop,
        relu_backward,
        residual_norm,
        residual_norm_backward,
    )  # fmt: skip

    numbers = dict.fromkeys(
        ("vocab", "num_columns", "logits_stride", "losses_stride", "padding_id", "site", "width", "num_rows",
         "programs", "num_features", "drop_below"),
        INT,
    )  # fmt: skip
    scalars = dict.fromkeys(("smoothing", "gradient_scale", "scale", "eps"), "fp32")
    common = {**numbers, **scalars, "tokens": "*i32"}
    loss = {**common, "logits": BF16, "targets": "*i64", "losses": FP32}
    rows = {**common, **dict.fromkeys(("x", "y", "linear_bias", "weight", "bias", "summed", "normed"), BF16)}
    rows |= {"means": FP32, "rstds": FP32}
    back = {**rows, **dict.fromkeys(("grad_normed", "grad_summed", "grad_x", "grad_y"), BF16), "parts": FP32}
    columns = {**common, **dict.fromkeys(("grad", "out", "masked", "sums", "x"), BF16), "parts": FP32}
    few, none = {"drop_below": "i64"}, {"linear_bias": None, "bias": None, "tokens": None, "grad_summed": None}

    def forward(has: bool) -> Constants:
        left_out = {} if has else {name: none[name] for name in ("linear_bias", "bias", "tokens")}
        return {"BLOCK": 1024, "HAS_LINEAR_BIAS": has, "HAS_BIAS": has, "DROPS": has, **left_out}

    def backward(has: bool) -> Constants:
        left_out = {} if has else {name: none[name] for name in ("grad_summed", "tokens")}
        return {"BLOCK": 1024, "HAS_GRAD_SUMMED": has, "IS_CENTRED": has, "DROPS": has, **left_out}

    return [
        *((cross_entropy._rows, loss, {"WITH_GRAD": grad, "BLOCK": 8192}, 16) for grad in (True, False)),
        *((residual_norm._rows, rows, forward(has), 4) for has in (True, False)),
        *((residual_norm_backward._rows, back, backward(has), 4) for has in (True, False)),
        (residual_norm_backward._add_up, columns, {"ROWS": 256, "BLOCK": 16}, 4),
        (relu_backward._columns, columns, {"ROWS": 256, "COLUMNS": 16}, 8),
        *((drop._drop, {**columns, **more}, {"BLOCKS": 256}, 4) for more in ({}, few)),
    ]
