"""Memory and load of rank 0's machine at a log step. Reading them never synchronises with the device."""

import functools
import logging
from typing import Any

import psutil
import torch

from trainer.ranks.device import kind

log = logging.getLogger(__name__)

GIB = 2**30


def machine_figures(device: torch.device) -> dict[str, float]:
    """Memory in GiB and utilisation in percent, of the host and, if there is one, of the GPU.

    `cpu_utilization` is the mean over all cores of the machine since the previous call.
    """
    memory = psutil.virtual_memory()
    figures = {
        "host_memory_gib": _own_process().memory_info().rss / GIB,
        "host_memory_free_gib": memory.available / GIB,
        "cpu_utilization": psutil.cpu_percent(),
    }
    if kind(device) == "cuda":
        figures["device_memory_allocated_gib"] = torch.cuda.memory_allocated(device) / GIB
        figures["device_memory_peak_gib"] = torch.cuda.max_memory_allocated(device) / GIB
        figures |= _of_driver(device)
    return {key: round(value, 4) for key, value in figures.items()}


def _of_driver(device: torch.device) -> dict[str, float]:
    """The driver's figures for the GPU, over all processes that use it; empty without nvidia-ml-py."""
    opened = _handle(device)
    if opened is None:
        return {}
    nvml, handle = opened
    try:
        memory, rates = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetUtilizationRates(handle)
    except Exception:  # a MIG slice has no utilisation; and an error here must not end a run
        return {}
    return {"device_memory_used_gib": memory.used / GIB, "device_utilization": float(rates.gpu)}


@functools.cache
def _handle(device: torch.device) -> tuple[Any, Any] | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # by UUID, because the driver numbers devices without regard to CUDA_VISIBLE_DEVICES
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception as error:  # no driver, or one of another version
        log.warning("NVML: %s; the GPU's utilisation and used memory are not logged, training goes on", error)
        return None


@functools.cache
def _own_process() -> psutil.Process:
    psutil.cpu_percent()  # the first call returns 0 and starts the measurement
    return psutil.Process()
