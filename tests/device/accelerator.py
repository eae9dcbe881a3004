"""DeepSpeed on the pseudo device: it takes the branches of an asynchronous device, with streams and events."""

import contextlib
from functools import partial
from unittest.mock import patch

import torch
from torch import Tensor

with patch.dict("os.environ", DS_ACCELERATOR="cpu"):  # else it looks for a device and says that there is none
    import deepspeed
    from deepspeed.accelerator import get_accelerator, set_accelerator
    from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

    get_accelerator()

from tests.device.meter import Event, add_wait, always
from tests.device.pseudo import DEVICE
from trainer.ranks import distributed

TENSORS = {
    "BFloat16Tensor": torch.bfloat16,
    "ByteTensor": torch.uint8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
}


class PseudoStream:
    """In which operators follow one another; of one for another the host does not wait."""

    __init__ = wait_stream = wait_event = always(None)
    record_event = always(Event())

    def synchronize(self) -> None:
        """The host waits."""
        add_wait("stream")


class PseudoAccelerator(CPU_Accelerator):  # type: ignore[misc]
    """What DeepSpeed asks of a device: the only one, which computes while the host goes on."""

    Stream, Event = PseudoStream, Event
    is_synchronized_device = use_host_timers = resolves_data_dependency = handles_memory_backpressure = always(False)
    is_fp16_supported = always(True)
    current_device, current_device_name, device_count = always(0), always(str(DEVICE)), always(1)
    device = stream = always(contextlib.nullcontext())
    current_stream = default_stream = always(PseudoStream())

    def device_name(self, device_index: int | None = None) -> str:
        """As torch spells it."""
        return DEVICE.type if device_index is None else str(DEVICE)

    def synchronize(self, device_index: int | None = None) -> None:
        """The host waits."""
        add_wait("synchronize")

    def on_accelerator(self, tensor: Tensor) -> bool:
        """Whether it is on the device."""
        return tensor.device.type == DEVICE.type

    def pin_memory(self, tensor: Tensor, make_copy: bool = True, match_shape: bool = True) -> Tensor:
        """A page-locked copy."""
        return tensor.pin_memory()


def _tensors(dtype: torch.dtype) -> property:
    return property(lambda _: partial(torch.tensor, dtype=dtype, device=DEVICE))


for _name, _dtype in TENSORS.items():
    setattr(PseudoAccelerator, _name, _tensors(_dtype))


def use_pseudo_device() -> None:
    """Have ranks and DeepSpeed take the pseudo device for this process's. Before the first of either is made."""
    accelerator = PseudoAccelerator()
    accelerator._name = DEVICE.type
    set_accelerator(accelerator)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it compiles a C++ op for gloo
    vars(distributed).update(choose_device=lambda *_: DEVICE)
    Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]
