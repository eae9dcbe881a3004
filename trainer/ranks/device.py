"""The device that a rank computes on, and what follows from its kind.

The one place that chooses. What computes otherwise on one kind than on another is in `model.kernels` and
`trainer.engines`; all else asks here, and never what a device is.
"""

import torch


def choose_device(local_rank: int | None = None) -> torch.device:
    """A GPU where there are some: that of a rank, or the current one; else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda") if local_rank is None else torch.device("cuda", local_rank)


def kind(device: torch.device) -> str:
    """What to call it."""
    return device.type


def is_host(device: torch.device) -> bool:
    """Whether its memory is the host's, and the host computes."""
    return device.type == "cpu"


def backend(device: torch.device) -> str:
    """What carries tensors between such devices."""
    return "nccl" if device.type == "cuda" else "gloo"


def seed(device: torch.device, number: int) -> None:
    """Seed what dropout draws from; torch.manual_seed formats a stack for each kind of device that is not there."""
    if is_host(device):
        torch.default_generator.manual_seed(number)
    else:
        torch.get_device_module(device).manual_seed(number)


def wait(device: torch.device) -> None:
    """Until it has done what the host asked for."""
    if not is_host(device):
        torch.get_device_module(device).synchronize(device)
