"""Launches of kernels that are compiled already, without Triton's own look at every argument."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

ALIGNMENT = 16
"""Bytes: kernels are compiled for tensors that begin at a multiple of this, or for any."""

_compiled: dict[tuple[Any, ...], Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Sequence[Tensor | None],
    numbers: Sequence[float],
    constants: Mapping[str, Any],
    *,
    variant: Sequence[float],
    **options: int,
) -> None:
    """`kernel[grid](*tensors, *numbers, **constants, **options)`.

    What Triton compiled for such arguments is kept and launched again: its way there takes 15 to 30 microseconds of the
    host. Tensors that begin elsewhere than at a multiple of 16 bytes take it every time.

    Args:
        kernel: of `triton.jit`; its parameters are the tensors, the numbers and the constants, in this order.
        grid: number of programs.
        tensors: on the current device; the first is not None.
        numbers: integers and floats.
        constants: the `tl.constexpr`.
        variant: those of the numbers for which Triton may compile anew.
        options: of the compiler, such as the warps of a program.
    """
    assert tensors[0] is not None
    types, places = [None if tensor is None else tensor.dtype for tensor in tensors], 0
    for tensor in tensors:
        if tensor is not None:
            places |= tensor.data_ptr()
    key = (kernel.fn, tensors[0].device.index, *options.values(), *types, *variant, *constants.values())
    if places % ALIGNMENT == 0 and (compiled := _compiled.get(key)) is not None:
        compiled[grid](*tensors, *numbers, *constants.values())
        return
    compiled = kernel[grid](*tensors, *numbers, **constants, **options)
    if places % ALIGNMENT == 0 and compiled is not None:  # None under the interpreter
        _compiled[key] = compiled
