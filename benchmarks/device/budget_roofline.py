"""Roofline estimate (Williams et al., 2009) of an update's time from its kernels, bytes and FLOPs.

The host launches kernels while the device executes them; during a host wait both are idle: time = max(host, device) +
waits. An operator takes the larger of its memory time and its compute time. Communication between GPUs and Python code
other than launches are not included.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.device.work import MAX_PIECES, MEDIAN_PIECES, SIGMA
from data_pipeline.order.windows import Budget, plan_window
from tests.device.meter import Call

LAUNCH_SECONDS = 6e-6
"""Host time for a kernel launch."""
WAIT_SECONDS = 20e-6
BYTES_PER_SECOND = 3.35e12 * 0.8
"""Memory bandwidth of an H100 SXM, times the fraction that kernels reach."""
PEAK_FLOPS = 989e12
"""Dense bf16 peak of an H100 SXM, the denominator of MFU."""
MATMUL_FLOPS = PEAK_FLOPS * 0.65
"""FLOP/s that matmuls reach."""
LENGTH_MULTIPLE = 8
NUM_PAIRS = 100_000


@dataclass(kw_only=True, frozen=True)
class Estimate:
    """Estimated seconds of an update of one rank."""

    host: float
    device: float
    waits: float
    mfu: float

    @property
    def seconds(self) -> float:
        """Total time of the update."""
        return max(self.host, self.device) + self.waits

    @property
    def limit(self) -> str:
        """Which of host and device takes longer."""
        return "host" if self.host > self.device else "device"


def device_seconds(call: Call) -> float:
    """Device time of one operator."""
    return max(call.bytes / BYTES_PER_SECOND, call.flops / MATMUL_FLOPS)


def estimate(calls: Iterable[Call], *, num_waits: int, flops: float) -> Estimate:
    """Estimate the time of an update.

    Args:
        calls: all operator calls of the update.
        num_waits: how often the host waits for the device.
        flops: FLOPs of the model without padding and recomputation.
    """
    found = list(calls)
    host = LAUNCH_SECONDS * sum(call.launches for call in found)
    device = sum(map(device_seconds, found))
    waits = WAIT_SECONDS * num_waits
    return Estimate(host=host, device=device, waits=waits, mfu=flops / PEAK_FLOPS / (max(host, device) + waits))


def typical_micro_batch(tokens: int) -> NDArray[np.int64]:
    """Lengths (rows, 2), EOS included, of the pairs of a micro-batch of `tokens` padded tokens per side.

    Batches lengths distributed like WMT14 English-German as the trainer does, and returns the micro-batch whose padding
    is closest to the mean.
    """
    rng = np.random.default_rng(1)
    source = rng.lognormal(np.log(MEDIAN_PIECES), SIGMA, NUM_PAIRS)
    sides = (source, source * rng.lognormal(0.0, 0.15, NUM_PAIRS))
    lengths = np.stack([side.clip(1, MAX_PIECES).astype(np.uint16) for side in sides], axis=1)
    budget = Budget(source_tokens=tokens, target_tokens=tokens, max_rows=tokens, length_multiple=LENGTH_MULTIPLE)
    plan = plan_window(lengths, budget, seed=1, place=(0, 0, 0, 0), before=None)
    batches = [lengths[plan.micro_batch(number)].astype(np.int64) + 1 for number in range(len(plan))]
    padding = [padding_fraction(batch) for batch in batches]
    return batches[int(np.argmin(np.abs(np.array(padding) - np.mean(padding))))]


def padded_shape(lengths: NDArray[np.int64]) -> tuple[int, int, int]:
    """Number of rows, padded source length and padded target length of a micro-batch with these lengths."""
    longest = -(-lengths.max(axis=0) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    return len(lengths), int(longest[0]), int(longest[1])


def padding_fraction(lengths: NDArray[np.int64]) -> float:
    """The padding fraction of a micro-batch with these lengths."""
    rows, source, target = padded_shape(lengths)
    return 1 - int(lengths.sum()) / (rows * (source + target))


def by_operator(calls: Sequence[Call]) -> list[dict[str, float | str]]:
    """Launches, gigabytes, TFLOPs and milliseconds by operator, longest first."""
    found: dict[str, list[float]] = {}
    for call in calls:
        row = found.setdefault(call.operator, [0.0] * 4)
        for i, value in enumerate((call.launches, call.bytes / 1e9, call.flops / 1e12, 1e3 * device_seconds(call))):
            row[i] += value
    names = ("launches", "GB", "TFLOP", "ms")
    ordered = sorted(found.items(), key=lambda item: -item[1][-1])
    return [{"operator": name, **dict(zip(names, row, strict=True))} for name, row in ordered]
