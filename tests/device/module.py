"""`torch.pseudo`, and the name of the pseudo device: what torch asks of any device's module."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.device.meter import Event, add_wait, always


class Module:
    """Of one device, whose memory is the host's."""

    _initialized = True  # else checkpointing does not keep the generator's state
    Event = Event

    def __init__(self) -> None:
        self._generator = torch.Generator()

    is_initialized = is_available = always(True)
    _is_in_bad_fork = always(False)
    device_count, current_device, set_device = always(1), always(0), always(None)
    device = always(contextlib.nullcontext())
    get_amp_supported_dtype = always([torch.float16, torch.bfloat16])

    def manual_seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, _: Any = None) -> Tensor:
        return self._generator.get_state()

    def set_rng_state(self, state: Tensor, _: Any = None) -> None:
        self._generator.set_state(state)

    def synchronize(self, _: Any = None) -> None:
        add_wait("synchronize")

    @contextlib.contextmanager
    def random_numbers(self) -> Iterator[None]:
        """Within it, what draws on the host draws from the device's generator."""
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(self._generator.get_state())
        try:
            yield
        finally:
            self._generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)


MODULE = Module()
_setup_privateuseone_for_python_backend("pseudo", backend_module=MODULE)
DEVICE = torch.device("pseudo", 0)
