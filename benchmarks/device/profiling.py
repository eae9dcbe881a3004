"""Time in which a GPU ran kernels, and their number."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]


def profiled(function: Callable[[], Any], *, repetitions: int) -> tuple[float, float]:
    """Seconds in which at least one kernel ran, and kernels launched, copies among them: of one repetition, on average.

    A first call is not counted.
    """
    function()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(repetitions):
            function()
        torch.cuda.synchronize()
    kernels = [e for e in profiler.events() if e.device_type != DeviceType.CPU and not e.is_user_annotation]
    busy = union((e.time_range.start, e.time_range.end) for e in kernels)
    return busy / 1e6 / repetitions, len(kernels) / repetitions


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of what intervals cover together: kernels of several streams may overlap."""
    length, covered = 0.0, float("-inf")
    for start, end in sorted(intervals):
        length += max(0.0, end - max(start, covered))
        covered = max(covered, end)
    return length
