"""The time of an update by a roofline (Williams et al., 2009): what its kernels, bytes and FLOPs allow. All estimated.

The host launches one kernel after the other while the device works off what was launched, and neither goes on while
the host waits: time = max(host, device) + waits. An operator takes the device as long as its bytes or its FLOPs do,
whichever is longer. What is sent between GPUs, and the trainer's Python beside launches, are not in it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.device.work import MAX_PIECES, MEDIAN_PIECES, SIGMA
from data_pipeline.order.windows import Budget, plan_window
from tests.device.meter import Call

LAUNCH_SECONDS = 6e-6
"""Of the host, for a kernel."""
WAIT_SECONDS = 20e-6
BYTES_PER_SECOND = 3.35e12 * 0.8
"""Of an H100 SXM's memory, and what kernels reach of it."""
PEAK_FLOPS = 989e12
"""Of an H100 SXM in bf16, dense: what MFU is a fraction of."""
MATMUL_FLOPS = PEAK_FLOPS * 0.65
"""What matmuls reach of it."""
LENGTH_MULTIPLE = 8
NUM_PAIRS = 100_000


@dataclass(kw_only=True, frozen=True)
class Estimate:
    """Of an update of one rank, in seconds."""

    host: float
    device: float
    waits: float
    mfu: float

    @property
    def seconds(self) -> float:
        """Of the update."""
        return max(self.host, self.device) + self.waits

    @property
    def limit(self) -> str:
        """What it would be shorter without."""
        return "host" if self.host > self.device else "device"


def device_seconds(call: Call) -> float:
    """Of one operator."""
    return max(call.bytes / BYTES_PER_SECOND, call.flops / MATMUL_FLOPS)


def estimate(calls: Iterable[Call], *, num_waits: int, flops: float) -> Estimate:
    """The time of an update.

    Args:
        calls: all of its operators.
        num_waits: of the host for the device.
        flops: of the model, without padding and recomputation.
    """
    found = list(calls)
    host = LAUNCH_SECONDS * sum(call.launches for call in found)
    device = sum(map(device_seconds, found))
    waits = WAIT_SECONDS * num_waits
    return Estimate(host=host, device=device, waits=waits, mfu=flops / PEAK_FLOPS / (max(host, device) + waits))


def usual_micro_batch(tokens: int) -> NDArray[np.int64]:
    """(rows, 2): lengths of the pairs of a micro-batch of so many padded tokens a side, EOS counted.

    Lengths as of WMT14 English-German are cut into micro-batches as the trainer does; of these the one that is nearest
    to their mean padding.
    """
    dice = np.random.default_rng(1)
    source = dice.lognormal(np.log(MEDIAN_PIECES), SIGMA, NUM_PAIRS)
    sides = (source, source * dice.lognormal(0.0, 0.15, NUM_PAIRS))
    lengths = np.stack([side.clip(1, MAX_PIECES).astype(np.uint16) for side in sides], axis=1)
    budget = Budget(source_tokens=tokens, target_tokens=tokens, max_rows=tokens, length_multiple=LENGTH_MULTIPLE)
    plan = plan_window(lengths, budget, seed=1, place=(0, 0, 0, 0), before=None)
    batches = [lengths[plan.micro_batch(number)].astype(np.int64) + 1 for number in range(len(plan))]
    padding = [padding_of(batch) for batch in batches]
    return batches[int(np.argmin(np.abs(np.array(padding) - np.mean(padding))))]


def padded(lengths: NDArray[np.int64]) -> tuple[int, int, int]:
    """Rows, source and target length of a micro-batch of such pairs."""
    longest = -(-lengths.max(axis=0) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
    return len(lengths), int(longest[0]), int(longest[1])


def padding_of(lengths: NDArray[np.int64]) -> float:
    """The fraction of the places in a micro-batch of such pairs that hold no token."""
    rows, source, target = padded(lengths)
    return 1 - int(lengths.sum()) / (rows * (source + target))


def by_operator(calls: Sequence[Call]) -> list[dict[str, float | str]]:
    """Launches, gigabytes, TFLOPs and milliseconds of each kind of operator, the longest first."""
    found: dict[str, list[float]] = {}
    for call in calls:
        row = found.setdefault(call.operator, [0.0] * 4)
        for i, value in enumerate((call.launches, call.bytes / 1e9, call.flops / 1e12, 1e3 * device_seconds(call))):
            row[i] += value
    names = ("launches", "GB", "TFLOP", "ms")
    ordered = sorted(found.items(), key=lambda item: -item[1][-1])
    return [{"operator": name, **dict(zip(names, row, strict=True))} for name, row in ordered]
