"""Triton's kernels compiled for a GPU that need not be there, as a task of a process of its own."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
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


def _compiled(variant: Variant, capability: int, aligned: Callable[[str, str], bool] = lambda name, kind: False) -> Any:
    """A kernel as Triton leaves it; `aligned` says of an argument's name and type whether 16 divides it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, types, constants, options = variant
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    hints = {
        (at,): [["tt.divisibility", 16]] for at, (name, kind) in enumerate(signature.items()) if aligned(name, kind)
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=places, attrs=hints)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def registers(capability: int, precision: str, width: int) -> dict[str, tuple[int, int]]:
    """Of attention of short rows, heads of a width: registers of a thread, and bytes that it keeps in memory instead.

    By kernel, whether it is causal and whether it drops.
    """
    found = {}
    for variant in _attentions(capability, precision, width):
        kernel, _, constants, _ = variant
        name = f"{kernel.fn.__module__.rpartition('.')[2]} {constants['IS_CAUSAL']} {constants['DROPS']}"
        found[name] = _usage(variant, capability, precision)
    return found


def _usage(variant: Variant, capability: int, precision: str) -> tuple[int, int]:
    from triton import knobs

    done = _compiled(variant, capability, lambda name, kind: kind == f"*{precision}" or name.endswith("_stride"))
    file = Path("kernel.cubin")
    file.write_bytes(done.asm["cubin"])
    command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", told)}
    return usage["REG"], usage["STACK"] + usage["LOCAL"]


def specialised() -> list[str]:
    """Arguments for whose values, or for where they begin in memory, Triton compiles a kernel anew."""
    parameters = [p for kernel, *_ in _variants() for p in kernel.params if not p.is_constexpr]
    return [p.name for p in parameters if not (p.do_not_specialize or p.do_not_specialize_on_alignment)]


def _attentions(capability: int, precision: str, width: int) -> list[Variant]:
    from model.kernels.cuda.triton_kernels import short_attention, short_attention_backward

    tensors = ("query", "key", "value", "out", "grad", "grad_query", "grad_key", "grad_value")
    types = {**dict.fromkeys(tensors, f"*{precision}"), "log_sums": FP32}
    types |= dict.fromkeys(("query_bounds", "key_bounds", "tokens"), "*i32")
    numbers = ("grad_stride", "query_stride", "key_stride", "value_stride", "num_tokens", "site", "drop_below")
    types |= {**dict.fromkeys(numbers, INT), "drop_scale": "fp32", "scale": "fp32"}
    uses_cores = precision != "fp32" and divmod(capability, 10) >= short_attention.TENSOR_CORES_SINCE
    found: list[Variant] = []
    for kernel in (short_attention._rows, short_attention_backward._rows):
        for is_causal in (True, False):
            for drops in (True, False):
                sizes, options = short_attention.sizes(width, uses_cores=uses_cores, drops=drops)
                constants = {"HEADS": 8, "WIDTH": width, "IS_CAUSAL": is_causal, **sizes}
                found.append((kernel, types, constants if drops else {**constants, "tokens": None}, options))
    return found


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

    def entropy(grad: bool, *, has: bool) -> Constants:
        return {"WITH_GRAD": grad, "HAS_SCALES": has, "BLOCK": 8192, **({} if has else {"scales": None})}

    variants = [
        *((cross_entropy._rows, loss, entropy(grad, has=False), 16) for grad in (True, False)),
        (cross_entropy._rows, {**loss, "scales": FP32}, entropy(True, has=True), 16),
        *((residual_norm._rows, rows, forward(has), 4) for has in (True, False)),
        *((residual_norm_backward._rows, back, backward(has), 4) for has in (True, False)),
        (residual_norm_backward._add_up, columns, {"ROWS": 256, "BLOCK": 16}, 4),
        (relu_backward._columns, columns, {"ROWS": 256, "COLUMNS": 16}, 8),
        *((drop._drop, {**columns, **more}, {"BLOCKS": 256}, 4) for more in ({}, few)),
    ]
    return [
        *((kernel, types, constants, {"num_warps": num_warps}) for kernel, types, constants, num_warps in variants),
        *_modern(),
        *_attentions(90, "bf16", 64)[::4],
    ]


def _modern() -> list[Variant]:
    """Of SwiGLU and rotary positions, with the sizes of `modern` and of heads of 128."""
    from model.kernels.cuda.triton_kernels import rotate, swiglu, swiglu_backward

    tensors = ("grad", "gate", "inner", "out", "query", "key", "query_out", "key_out", "table")
    types = {**dict.fromkeys(tensors, BF16), "tokens": "*i32"}
    types |= dict.fromkeys(("grad_stride", "gate_stride", "inner_stride", "query_stride", "key_stride", "width"), INT)
    heads = ((8, 8, 64, 512, 512), (16, 4, 128, 2048, 512))
    names = ("HEADS", "KEY_HEADS", "WIDTH", "BLOCK", "KEY_BLOCK")
    return [
        *((kernel._blocks, types, {"BLOCK": 1024}, {"num_warps": 4}) for kernel in (swiglu, swiglu_backward)),
        *(
            (rotate._tokens, types, {**dict(zip(names, sizes, strict=True)), "IS_BACK": is_back}, {"num_warps": 4})
            for sizes in heads
            for is_back in (False, True)
        ),
    ]


def launched() -> list[tuple[list[Any], int]]:
    """Launches of the same kernel by a driver that launches nothing: what it is given, and how often Triton looked.

    In order: twice the same, another dropout number, a width of another kind, a tensor that begins elsewhere, twice.
    """
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime.driver import driver

    from model.kernels.cuda.triton_kernels.drop import _drop, drop

    given: list[Any] = []
    driver.set_active(_Driver(GPUTarget("cuda", 90, 32), given))
    looks: list[Any] = []
    run = _drop.run

    def look(*args: Any, **kwargs: Any) -> Any:
        looks.append(args)
        return run(*args, **kwargs)

    vars(_drop)["run"] = look
    found = []
    tokens = torch.zeros(3, 4, dtype=torch.int32)
    wide, narrow, apart = torch.zeros(3, 64), torch.zeros(3, 61), torch.zeros(3 * 64 + 1)[1:].view(3, 64)
    for x, site in ((wide, 1), (wide, 1), (wide, 16), (narrow, 1), (apart, 1), (apart, 1)):
        drop(x, tokens, site, 0.25)
        grid, arguments = given[-1]
        found.append(([grid, arguments[0] is x, arguments[2] is tokens, *arguments[3:]], len(looks)))
    return found


class _Driver:
    """Of a GPU that is not there."""

    def __init__(self, target: Any, given: list[Any]) -> None:
        class Utils:
            def get_device_properties(self, _: int) -> dict[str, int]:
                return {"max_shared_mem": 232_448}

            def load_binary(self, *_: Any) -> tuple[int, ...]:
                return 1, 1, 32, 0, 1024

        class Launcher:
            def __init__(self, *_: Any) -> None:
                pass

            def __call__(self, *args: Any) -> None:
                given.append((args[:3], args[9:]))  # behind them stream, function, metadata and hooks

        self.target, self.utils, self.launcher_cls = target, Utils(), Launcher

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0

    def map_python_to_cpp_type(self, name: str) -> str:
        return name
