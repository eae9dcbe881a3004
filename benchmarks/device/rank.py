"""One rank of `zeromt train`: `benchmarks.device.rank OUT PROFILED_AFTER ARGUMENT...` writes OUT.RANK as JSON.

The file has the peak GPU memory and, if PROFILED_AFTER is not 0, a profile of some updates after that many.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from benchmarks.device.plain_loop import peaks
from benchmarks.device.work import Figures
from launcher.cli import main as zeromt
from trainer.ranks.process import tune_process

PROFILED_WARM_UP, PROFILED = 2, 5
"""Updates of the profiler's warm-up, and profiled updates."""


def main(out: str, profiled_after: int, arguments: Sequence[str]) -> int:
    """Run `zeromt train` in this process; writes its peak memory and, if `profiled_after` is not 0, a profile."""
    found: Figures = {}
    with _profiler(profiled_after, found) if profiled_after else contextlib.nullcontext():
        code = zeromt(["train", *arguments])
    if code == 0:
        found |= peaks("cuda" if torch.cuda.is_available() else "cpu")
        Path(f"{out}.{os.environ.get('RANK', '0')}").write_text(json.dumps(found))
    return code


@contextlib.contextmanager
def _profiler(after: int, found: Figures) -> Iterator[None]:
    """Profile some updates of this process's engine after the first `after`; stores `found["profile"]`."""
    tune_process()  # before DeepSpeed is imported, as the trainer does
    from trainer.engines.deepspeed.engine import DeepSpeedEngine

    step, times = DeepSpeedEngine.step, [0.0]

    def stepped(engine: DeepSpeedEngine, lr: float) -> Any:
        result = step(engine, lr)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        profiler.step()
        return result

    def keep(profiler: torch.profiler.profile) -> None:
        found["profile"] = _summary(profiler, seconds=times[-1] - times[-1 - PROFILED])

    schedule = torch.profiler.schedule(wait=after, warmup=PROFILED_WARM_UP, active=PROFILED, repeat=1)
    with (
        torch.profiler.profile(schedule=schedule, on_trace_ready=keep) as profiler,
        mock.patch.object(DeepSpeedEngine, "step", stepped),
    ):
        yield


def _summary(profiler: torch.profiler.profile, *, seconds: float) -> Figures:
    """Time by operation over the profiled updates: device time if there is a device, else CPU time."""
    events = profiler.key_averages()
    named = [e for e in events if not (e.is_user_annotation or e.key.startswith("ProfilerStep"))]
    kernels = [e for e in named if e.device_type != DeviceType.CPU]
    clock = "self_device_time_total" if kernels else "self_cpu_time_total"
    operations = [e for e in named if e.device_type == DeviceType.CPU and getattr(e, clock) > 0]
    total = sum(getattr(e, clock) for e in operations)
    return {
        "seconds_per_update": seconds / PROFILED,
        "device_busy": sum(e.self_device_time_total for e in kernels) / 1e6 / seconds if kernels else None,
        "operations": [
            {"name": e.key, "calls": e.count, "share": getattr(e, clock) / total}
            for e in sorted(operations, key=lambda e: getattr(e, clock), reverse=True)[:40]
        ],
        "table": events.table(sort_by=clock, row_limit=60, max_name_column_width=100),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
