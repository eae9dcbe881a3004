"""What a device would have to do for what runs on the pseudo device: kernels, bytes, FLOPs, and waits of the host."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from model.kernels.cuda.operators import OPERATORS

aten = torch.ops.aten
COLLECTIVES = "c10d::"
"""Begins the names of torch's operators for them."""

REPOSITORY = str(Path(__file__).parents[2])
MACHINERY = tuple(
    str(Path(__file__).with_name(f"{name}.py")) for name in ("pseudo", "module", "meter", "attention", "accelerator")
)
DEEPSPEED = "/site-packages/deepspeed/"
AUTOGRAD = "autograd"
"""Instead of a line of code: a backward pass, which runs in torch's own thread without Python."""

FREE = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::empty_permuted", "aten::detach_", "aten::lift_fresh", "aten::set_", "aten::resize_", "aten::record_stream",
    "aten::is_pinned", "aten::_unsafe_view", "aten::_local_scalar_dense",}  # fmt: skip
"""Operators without a kernel, beside those that give a view."""

LAUNCHES = {
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": 3,
    "aten::_flash_attention_backward": 3,
}
"""Kernels of an operator that launches another number than one. Flash attention goes backward in three: the products of
output and gradient, the gradients, the query's to 16 bits; the efficient kernels in one, in half precision. A
`_foreach_` operator counts as one; a GPU launches one for every 30 to 100 tensors."""


ATTENTION_PRODUCTS = {
    "aten::_scaled_dot_product_fused_attention_overrideable": 2,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": 5,
    "aten::_flash_attention_forward": 2,
    "aten::_flash_attention_backward": 5,
    "aten::_efficient_attention_forward": 2,
    "aten::_efficient_attention_backward": 5,
}
"""Matmuls of fused attention; backward the scores are computed again."""

READ_IN_PARTS = {"aten::gather", "aten::embedding", "aten::index_select", "aten::index"}
WRITTEN_IN_PARTS = {"aten::scatter_", "aten::scatter_add_", "aten::index_put_", "aten::index_add_"}
"""Of whose first argument only what the indices name is moved."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Call:
    """An operator that ran on the device."""

    operator: str
    line: str
    launches: int
    bytes: int
    """Read and written, each tensor once; what is changed in place twice."""
    flops: int
    """Of matmuls."""
    sent: int = 0
    """Bytes of a collective on the side of this rank that has more of them, given or made; 0 of anything else."""


class Meter:
    """Counts while it is on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.waits: Counter[str] = Counter()
        """Of the host for the device: kind and line of code."""
        self.uploads: Counter[str] = Counter()
        """Copies to the device out of memory that is not pinned, or for which the host waits; by line."""
        self.queued: list[int] = []
        """For each event that the host asks for with more launched behind it: how many kernels. The host may stand
        still until the event, the device does not."""

    @property
    def num_kernels(self) -> int:
        """Launched."""
        return sum(call.launches for call in self.calls)

    @property
    def num_waits(self) -> int:
        """Of the host for the device."""
        return self.waits.total()

    @property
    def collectives(self) -> list[Call]:
        """In their order."""
        return [call for call in self.calls if call.sent]

    def by_operator(self) -> Counter[str]:
        """Kernels."""
        return self._by(lambda call: call.operator)

    def by_line(self) -> Counter[str]:
        """Kernels, by the line of code that asked for them."""
        return self._by(lambda call: call.line)

    def _by(self, key: Callable[[Call], str]) -> Counter[str]:
        found: Counter[str] = Counter()
        for call in self.calls:
            found[key(call)] += call.launches
        return found


METERS: list[Meter] = []
"""Those that are on."""


@contextmanager
def metered() -> Iterator[Meter]:
    """A meter that counts what happens within."""
    meter = Meter()
    METERS.append(meter)
    try:
        yield meter
    finally:
        METERS.remove(meter)


def add_wait(kind: str) -> None:
    """The host waits for the device."""
    for meter in METERS:
        meter.waits[f"{kind} at {line_of_code()}"] += 1


class Event:
    """A place on the device's stream. Whoever waits for the newest work lets the device run dry."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._places: dict[int, int] = {}

    def record(self, *_: Any) -> None:
        """Behind what was launched so far."""
        self._places = {id(meter): len(meter.calls) for meter in METERS}

    def synchronize(self) -> None:
        """The host goes on when the device is here."""
        for meter in METERS:
            behind = sum(call.launches for call in meter.calls[self._places.get(id(meter), 0) :])
            if behind:
                meter.queued.append(behind)
            else:
                meter.waits[f"event at {line_of_code()}"] += 1


def add_upload() -> None:
    """The host waits until it may write to the device."""
    for meter in METERS:
        meter.uploads[line_of_code()] += 1


def add_call(func: Any, args: Sequence[Any], kwargs: dict[str, Any], given: Sequence[Tensor], out: Any) -> None:
    """An operator ran.

    Args:
        func, args, kwargs: as it was called.
        given: its arguments that are tensors on the device.
        out: what it gave.
    """
    name = func._schema.name
    made = [x for x in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(x, Tensor)]
    if is_free(func) or not any(x.numel() for x in (*given, *made)):
        return
    call = Call(
        operator=name.removeprefix("aten::"),
        line=line_of_code(),
        launches=OPERATORS[name].launches if name in OPERATORS else LAUNCHES.get(name, 1),
        bytes=_bytes(name, given, made),
        flops=_flops(func, args, kwargs, out),
        sent=_sent(name, args),
    )
    for meter in METERS:
        meter.calls.append(call)


def _sent(name: str, args: Sequence[Any]) -> int:
    if not name.startswith(COLLECTIVES):
        return 0
    return max(sum(map(memory_of, _tensors(side))) for side in args[:2])


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _bytes(name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> int:
    if name in OPERATORS:
        again = zip(OPERATORS[name].extra_moves, given, strict=False)
        return sum(times * memory_of(x) for times, x in again) + sum(map(memory_of, (*given, *made)))
    rest = sum(map(memory_of, given[1:]))
    if name in READ_IN_PARTS:
        return rest + 2 * sum(map(memory_of, made))
    if name in WRITTEN_IN_PARTS:
        return rest + memory_of(given[-1])
    return sum(map(memory_of, (*given, *made)))


def _flops(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int:
    if func._schema.name in ATTENTION_PRODUCTS:
        at = 1 if func._schema.name.endswith("backward") else 0
        if "_flash_attention_" in func._schema.name:  # of rows one behind the other, taken for equally long
            (num_queries, heads, width), num_keys = args[at].shape, args[at + 1].shape[0]
            num_rows = args[6 if at else 3].shape[0] - 1
            return int(2 * ATTENTION_PRODUCTS[func._schema.name] * heads * width * num_queries * num_keys / num_rows)
        (*_, length, width), (*_, keys, _) = args[at].shape, args[at + 1].shape
        return int(2 * ATTENTION_PRODUCTS[func._schema.name] * args[at].shape[:2].numel() * length * keys * width)
    formula = flop_registry.get(aten.addmm if func is aten._addmm_activation.default else func._overloadpacket)
    found: int = 0 if formula is None else formula(*args, **kwargs, out_val=out)
    return found


def is_free(func: Any) -> bool:
    """Whether an operator launches nothing."""
    return is_view(func) or func._schema.name in FREE


def is_view(func: Any) -> bool:
    """Whether an operator gives another look at its argument's memory."""
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


def memory_of(tensor: Tensor) -> int:
    """Bytes behind a tensor; what is expanded counts once."""
    num_elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        num_elements *= size if stride or size == 0 else 1
    return num_elements * tensor.element_size()


def line_of_code() -> str:
    """The innermost line of this repository's code or DeepSpeed's that is being executed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if DEEPSPEED in name:
            return f"deepspeed/{name.split(DEEPSPEED)[1]}:{frame.f_lineno}"
        if name.startswith(REPOSITORY) and name not in MACHINERY and "/site-packages/" not in name:
            return f"{name[len(REPOSITORY) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return AUTOGRAD
