"""The device that a rank computes on, and what depends on its kind.

Devices are chosen only here. Code that differs between kinds of devices is in `model.kernels` and `trainer.engines`;
everything else asks this module and never inspects a device.
"""

import functools
import logging
import os

import torch

from configs import UserError
from configs.process.gpus import no_gpu, num_gpus, unusable

log = logging.getLogger(__name__)


def settle_device(asked: str) -> None:
    """Make this process use the device that `engine.device` asks for, before anything asks CUDA for GPUs.

    Raises:
        UserError: there are GPUs that torch cannot use, a GPU that is asked for or named is not there, or DeepSpeed is
            told to use another device.
    """
    if asked == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif not torch.cuda.is_available():
        if present := num_gpus(os.environ):
            raise unusable(present, _torchs_reason())
        if asked == "cuda":
            raise no_gpu()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if (given := os.environ.get("DS_ACCELERATOR", device)) != device:
        raise UserError(f"DS_ACCELERATOR: {given!r} with engine.device={asked}, which is {device} here; leave it unset")


@functools.cache
def warn_of_unusable_gpus() -> None:
    """Warn if the CPU is used although there are GPUs."""
    if not torch.cuda.is_available() and (present := num_gpus(os.environ)):
        log.warning("%s", str(unusable(present, _torchs_reason())).removeprefix("engine.device: "))


def _torchs_reason() -> str:
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__} says: {' '.join(str(error).split()).rstrip('.')}"
    return f"torch {torch.__version__} cannot use them"


def choose_device(local_rank: int | None = None) -> torch.device:
    """The rank's GPU, or the current one, if there are GPUs; else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda") if local_rank is None else torch.device("cuda", local_rank)


def kind(device: torch.device) -> str:
    """torch's name of the kind of device."""
    return device.type


def platform(device: torch.device) -> str:
    """What all ranks must compute with."""
    return "a CPU" if is_host(device) else f"CUDA {torch.version.cuda}"


def device_name(device: torch.device) -> str:
    """The name of the GPU, or CPU."""
    return "CPU" if is_host(device) else str(torch.cuda.get_device_name(device))


def is_host(device: torch.device) -> bool:
    """Whether the device is the host itself."""
    return device.type == "cpu"


def backend(device: torch.device) -> str:
    """The communication backend for such devices."""
    return "nccl" if device.type == "cuda" else "gloo"


def seed(device: torch.device, number: int) -> None:
    """Seed dropout's generator. torch.manual_seed is slow: it formats a stack trace for each absent kind of device."""
    if is_host(device):
        torch.default_generator.manual_seed(number)
    else:
        torch.get_device_module(device).manual_seed(number)


def wait(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if not is_host(device):
        torch.get_device_module(device).synchronize(device)
