"""Time by kernel: on a GPU those that it ran, on a CPU the operators of the processor."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from benchmarks.device.plain_loop import wait


@dataclass(kw_only=True, frozen=True, slots=True)
class Operator:
    """All calls of a kernel, or of an operator, together."""

    name: str
    calls: int
    share: float
    """Of the time of all."""


@dataclass(kw_only=True, frozen=True, slots=True)
class Profile:
    """Of one repetition, on average."""

    device_seconds: float | None
    """In which at least one kernel ran; None on a CPU."""
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
    events = [e for e in profiler.events() if not e.is_user_annotation]
    kernels = [e for e in events if e.device_type != DeviceType.CPU]
    times: dict[str, list[float]] = defaultdict(list)
    for event in kernels or events:
        times[event.name].append(event.time_range.elapsed_us() if kernels else event.self_cpu_time_total)
    total = sum(map(sum, times.values()))
    dearest = sorted(times.items(), key=lambda item: sum(item[1]), reverse=True)
    busy = union((e.time_range.start, e.time_range.end) for e in kernels)
    return Profile(
        device_seconds=busy / 1e6 / repetitions if kernels else None,
        launches=len(kernels) / repetitions if kernels else None,
        operators=[Operator(name=name, calls=len(t), share=sum(t) / total) for name, t in dearest],
    )


def union(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of what intervals cover together: kernels of several streams may overlap."""
    length, covered = 0.0, float("-inf")
    for start, end in sorted(intervals):
        length += max(0.0, end - max(start, covered))
        covered = max(covered, end)
    return length
