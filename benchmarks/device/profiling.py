"""Time by operator: on a GPU that of its kernels, on a CPU that of the processor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from benchmarks.device.plain_loop import wait


@dataclass(kw_only=True, frozen=True, slots=True)
class Operator:
    """All calls of an operator together."""

    name: str
    calls: int
    share: float
    """Of the time of all operators."""


@dataclass(kw_only=True, frozen=True, slots=True)
class Profile:
    """Of one repetition, on average."""

    device_seconds: float | None
    """In which a kernel ran; None on a CPU."""
    launches: float | None
    """Kernels launched, copies among them; None on a CPU."""
    operators: list[Operator]
    """The dearest first."""


def profiled(function: Callable[[], Any], *, repetitions: int) -> Profile:
    """Profile a function after one call that is not counted."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    function()
    wait(device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(repetitions):
            function()
        wait(device)
    events = [e for e in profiler.key_averages() if not e.is_user_annotation]
    kernels = [e for e in events if e.device_type != DeviceType.CPU]
    clock = "self_device_time_total" if kernels else "self_cpu_time_total"
    named = [e for e in events if e.device_type == DeviceType.CPU and getattr(e, clock) > 0]
    total = sum(getattr(e, clock) for e in named)
    named.sort(key=lambda e: getattr(e, clock), reverse=True)
    return Profile(
        device_seconds=sum(e.self_device_time_total for e in kernels) / 1e6 / repetitions if kernels else None,
        launches=sum(e.count for e in kernels) / repetitions if kernels else None,
        operators=[Operator(name=e.key, calls=e.count, share=getattr(e, clock) / total) for e in named],
    )
