"""Copies from the device to the host for which nothing stands still."""

import torch
from torch import Tensor


class HostCopy:
    """A copy of a tensor to the host, made behind what the device has been given so far.

    Read it once the device has been given more to do: a read that comes too early waits, but the device goes on.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Begin it."""
        self._tensor = tensor.detach()
        self._event: torch.Event | None = None
        if tensor.device.type != "cpu":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
            self._tensor.copy_(tensor.detach(), non_blocking=True)
            self._event = torch.get_device_module(tensor.device).Event()
            self._event.record()

    def read(self) -> Tensor:
        """The copy, complete."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensor
