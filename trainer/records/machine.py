"""What the machine of rank 0 has left, as it stands at a log step. Never waits for the device."""

import functools
import logging
from typing import Any

import psutil
import torch

from trainer.ranks.device import kind

log = logging.getLogger(__name__)

GIB = 2**30


def machine_figures(device: torch.device) -> dict[str, float]:
    """Memory in GiB and how busy the processors are, in percent; on a GPU its own too.

    `cpu_utilization` is of all cores of the machine since it was last asked for.
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
    """What the driver says of the GPU, all processes counted; nothing without nvidia-ml-py."""
    found = _handle(device)
    if found is None:
        return {}
    nvml, handle = found
    try:
        memory, rates = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetUtilizationRates(handle)
    except Exception:  # a part of a GPU (MIG) has no rates; and nothing of this may end a run
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
        # by its UUID: numbers of the driver are not those of CUDA_VISIBLE_DEVICES
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    except Exception as error:  # no driver, or not the one that it fits
        log.warning("NVML: %s; what it would tell of the GPU is left out, training goes on", error)
        return None


@functools.cache
def _own_process() -> psutil.Process:
    psutil.cpu_percent()  # the first call tells nothing
    return psutil.Process()
