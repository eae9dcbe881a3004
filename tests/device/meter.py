"""What a device would have to do for what runs on the pseudo device: kernels, collectives, and waits of the host."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_leaves

from model.kernels.cuda.operators import LAUNCHES

REPOSITORY, MACHINERY = (str(Path(__file__).parents[up]) for up in (2, 0))
DEEPSPEED = "/site-packages/deepspeed/"

FREE = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
    "aten::empty_permuted", "aten::detach_", "aten::lift_fresh", "aten::set_", "aten::resize_", "aten::record_stream",
    "aten::is_pinned", "aten::_unsafe_view", "aten::_local_scalar_dense",}  # fmt: skip
"""Operators without a kernel, beside those that give a view."""

OF_TORCH = {
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": 3,
    "aten::_flash_attention_backward": 3,
}
"""Kernels of torch's operators that launch another number than one. Flash attention goes backward in three: the
products of output and gradient, the gradients, the query's to 16 bits; the efficient kernels in one, in half precision.
A `_foreach_` operator counts as one; a GPU launches one for every 30 to 100 tensors."""


class Call(NamedTuple):
    """An operator that ran on the device."""

    operator: str
    line: str
    launches: int
    sent: int
    """Bytes of a collective on the side of this rank that has more of them, given or made; 0 of anything else."""


@dataclass(eq=False)
class Meter:
    """Counts while it is on."""

    calls: list[Call] = field(default_factory=list)
    waits: Counter[str] = field(default_factory=Counter)
    """Of the host for the device: kind and line of code."""
    uploads: Counter[str] = field(default_factory=Counter)
    """Copies to the device out of memory that is not pinned, or for which the host waits; by line."""
    queued: list[int] = field(default_factory=list)
    """For each event that the host asks for with more launched behind it: how many kernels. The host may stand still
    until the event, the device does not."""

    @property
    def num_kernels(self) -> int:
        """Launched."""
        return sum(call.launches for call in self.calls)

    def kernels_by(self, key: str) -> Counter[str]:
        """Kernels by `operator`, or by the `line` of code that asked for them."""
        counts: Counter[str] = Counter()
        for call in self.calls:
            counts[getattr(call, key)] += call.launches
        return counts


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


def always(answer: Any) -> Any:
    """A method that gives one answer."""
    return lambda *_, **__: answer


class Event:
    """A place on the device's stream. Whoever waits for the newest work lets the device run dry."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._places: dict[int, int] = {}

    def record(self, *_: Any) -> None:
        """Behind what was launched so far."""
        self._places = {id(meter): len(meter.calls) for meter in METERS}

    query = always(True)
    wait = always(None)
    """Of one stream for another: the host goes on."""

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


def add_call(name: str, args: Sequence[Any], given: Sequence[Tensor], out: Any) -> None:
    """An operator ran.

    Args:
        name: such as `aten::add`; it gives no view.
        args: as it was called.
        given: its arguments that are tensors on the device.
        out: what it gave.
    """
    if name in FREE or not any(x.numel() for x in (*given, *_tensors(out))):
        return
    sent = [sum(x.nbytes for x in _tensors(side)) for side in args[:2]] if name.startswith("c10d::") else [0]
    launches = LAUNCHES.get(name) or OF_TORCH.get(name, 1)
    call = Call(name.removeprefix("aten::"), line_of_code(), launches, max(sent))
    for meter in METERS:
        meter.calls.append(call)


def _tensors(value: Any) -> list[Tensor]:
    return [x for x in tree_leaves(value) if isinstance(x, Tensor)]


def line_of_code() -> str:
    """The innermost line of this repository's code or DeepSpeed's that is being executed.

    Of a backward pass, which runs in torch's own thread without Python, there is none.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if DEEPSPEED in name:
            return f"deepspeed/{name.split(DEEPSPEED)[1]}:{frame.f_lineno}"
        if name.startswith(REPOSITORY) and not name.startswith(MACHINERY) and "/site-packages/" not in name:
            return f"{name[len(REPOSITORY) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "autograd"
