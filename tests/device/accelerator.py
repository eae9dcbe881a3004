"""DeepSpeed on the pseudo device: it takes the branches of an asynchronous device, with streams and events."""

import contextlib
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

with patch.dict("os.environ", DS_ACCELERATOR="cpu"):  # else it looks for a device and says that there is none
    import deepspeed
    from deepspeed.accelerator import get_accelerator, set_accelerator
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    get_accelerator()

from tests.device.meter import add_wait
from tests.device.pseudo import DEVICE
from trainer.ranks import distributed


class PseudoEvent:
    """On the stream; what is to happen has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        """Nothing."""

    def wait(self, *_: Any) -> None:
        """Of one stream for another: the host goes on."""

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def synchronize(self) -> None:
        """The host waits."""
        add_wait("event")

    def elapsed_time(self, _: "PseudoEvent") -> float:
        """Milliseconds."""
        return 0.0


class PseudoStream:
    """In which operators follow one another."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, _: "PseudoStream") -> None:
        """One stream for another: the host goes on."""

    def wait_event(self, _: PseudoEvent) -> None:
        """See `wait_stream`."""

    def record_event(self, *_: Any) -> PseudoEvent:
        """A new one."""
        return PseudoEvent()

    def query(self) -> bool:
        """Whether all is done."""
        return True

    def synchronize(self) -> None:
        """The host waits."""
        add_wait("stream")


class PseudoAccelerator(CPU_Accelerator):  # type: ignore[misc]
    """What DeepSpeed asks of a device."""

    Stream, Event = PseudoStream, PseudoEvent

    def __init__(self) -> None:
        super().__init__()
        self._name = DEVICE.type
        self._stream = PseudoStream()

    def is_synchronized_device(self) -> bool:
        """No: the host goes on while the device computes."""
        return False

    def use_host_timers(self) -> bool:
        """See `is_synchronized_device`."""
        return False

    def resolves_data_dependency(self) -> bool:
        """See `is_synchronized_device`."""
        return False

    def handles_memory_backpressure(self) -> bool:
        """See `is_synchronized_device`."""
        return False

    def device_name(self, device_index: int | None = None) -> str:
        """As torch spells it."""
        return DEVICE.type if device_index is None else f"{DEVICE.type}:{device_index}"

    def device(self, device_index: int | None = None) -> Any:
        """The only one."""
        return contextlib.nullcontext()

    def current_device(self) -> int:
        """The only one."""
        return 0

    def current_device_name(self) -> str:
        """The only one."""
        return str(DEVICE)

    def device_count(self) -> int:
        """One."""
        return 1

    def synchronize(self, device_index: int | None = None) -> None:
        """The host waits."""
        add_wait("synchronize")

    def stream(self, stream: PseudoStream) -> Any:
        """Within it, what is launched goes to this stream."""
        return contextlib.nullcontext()

    def current_stream(self, device_index: int | None = None) -> PseudoStream:
        """The only one."""
        return self._stream

    def default_stream(self, device_index: int | None = None) -> PseudoStream:
        """The only one."""
        return self._stream

    def on_accelerator(self, tensor: Tensor) -> bool:
        """Whether it is on the device."""
        return tensor.device.type == DEVICE.type

    def is_fp16_supported(self) -> bool:
        """As every GPU does."""
        return True

    def pin_memory(self, tensor: Tensor, make_copy: bool = True, match_shape: bool = True) -> Tensor:
        """A page-locked copy."""
        return tensor.pin_memory()


def _tensors(dtype: torch.dtype) -> property:
    return property(lambda _: partial(torch.tensor, dtype=dtype, device=DEVICE))


for _name, _dtype in (
    ("BFloat16Tensor", torch.bfloat16),
    ("ByteTensor", torch.uint8),
    ("DoubleTensor", torch.float64),
    ("FloatTensor", torch.float32),
    ("HalfTensor", torch.float16),
    ("IntTensor", torch.int32),
    ("LongTensor", torch.int64),
):
    setattr(PseudoAccelerator, _name, _tensors(_dtype))


def use_pseudo_device() -> None:
    """Have ranks and DeepSpeed take the pseudo device for this process's. Before the first of either is made."""
    set_accelerator(PseudoAccelerator())
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles a C++ op for gloo
    vars(distributed).update(choose_device=lambda *_: DEVICE)
    Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
