"""Triton's kernels compiled for a GPU that need not be there, as a task of a process of its own."""

from typing import Any

BF16, FP32, INT = "*bf16", "*fp32", "i32"
Constants = dict[str, Any]
Variant = tuple[Any, dict[str, str], Constants, dict[str, int]]
"""A kernel, the types of its arguments, constants, and the compiler's options."""


def cubins(capability: int) -> dict[str, int]:
    """Bytes of machine code of every kernel, by its name and its constants.

    Args:
        capability: of the GPU: 90 is an H100.
    """
    found = {}
    for variant in _variants():
        kernel, _, constants, _ = variant
        name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__} {constants}"
        found[name] = len(_compiled(variant, capability).asm["cubin"])
    return found


def _compiled(variant: Variant, capability: int) -> Any:
    """A kernel as Triton leaves it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, types, constants, options = variant
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def specialised() -> list[str]:
    """Arguments for whose values, or for where they begin in memory, Triton compiles a kernel anew."""
    parameters = [p for kernel, *_ in _variants() for p in kernel.params if not p.is_constexpr]
    return [p.name for p in parameters if not (p.do_not_specialize or p.do_not_specialize_on_alignment)]


def _variants() -> list[Variant]:
    """With all that is optional, and with none."""
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
    scalars = dict.fromkeys(("smoothing", "scale", "eps"), "fp32")
    common = {**numbers, **scalars, "tokens": "*i32"}
    loss = {**common, "logits": BF16, "targets": "*i64", "losses": FP32, "gradient_scale": FP32}
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

    def entropy(grad: bool, *, has: bool) -> Constants:
        left_out = {} if has else {"scales": None, "gradient_scale": None}
        return {"WITH_GRAD": grad, "HAS_SCALES": has, "HAS_GRADIENT_SCALE": has, "BLOCK": 8192, **left_out}

    variants = [
        *((cross_entropy._rows, loss, entropy(grad, has=False), 16) for grad in (True, False)),
        (cross_entropy._rows, {**loss, "scales": FP32}, entropy(True, has=True), 16),
        *((residual_norm._rows, rows, forward(has), 4) for has in (True, False)),
        *((residual_norm_backward._rows, back, backward(has), 4) for has in (True, False)),
        (residual_norm_backward._add_up, columns, {"ROWS": 256, "BLOCK": 16}, 4),
        (relu_backward._columns, columns, {"ROWS": 256, "COLUMNS": 16}, 8),
        *((drop._drop, {**columns, **more}, {"BLOCKS": 256}, 4) for more in ({}, few)),
    ]
    return [(kernel, types, constants, {"num_warps": warps}) for kernel, types, constants, warps in variants]
