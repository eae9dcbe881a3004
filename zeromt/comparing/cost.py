"""What a run cost, and how it ended, from the files in its folder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.report import Table, plain
from trainer.runs.layout import LEDGER_FILE, METRICS_FILE, STATUS_FILE
from trainer.runs.ledger import KINDS, read_device_seconds, read_figures
from trainer.runs.metrics_file import Line, number, read_lines
from trainer.runs.status import Status, read_status


@dataclass(kw_only=True, slots=True, frozen=True)
class Cost:
    """What a run cost, and how it ended."""

    state: str | None
    updates: int | None
    target_tokens: int | None
    seconds: Mapping[str, float]
    """By activity; `wall` is their sum."""
    goodput: float | None
    """Fraction of the wall time spent on updates that count."""
    device_hours: Mapping[str, float]
    """Hours by the name of the device, summed over ranks."""
    tokens_per_second: float | None


def read_cost(folder: Path | None) -> Cost:
    """Cost and end of a run.

    Args:
        folder: of the run, if it has one.

    Raises:
        OSError: metrics.jsonl is there and cannot be read.
    """
    if folder is None:
        return Cost(
            state=None,
            updates=None,
            target_tokens=None,
            seconds={},
            goodput=None,
            device_hours={},
            tokens_per_second=None,
        )
    trained: Line = {}
    for line in read_lines(folder / METRICS_FILE, having='"train"'):
        trained = line if line.get("kind") == "train" else trained
    ledger, devices = read_figures(folder / LEDGER_FILE) or {}, read_device_seconds(folder / LEDGER_FILE) or {}
    tokens, seconds, updates = (number(trained, key) for key in ("total_target_tokens", "total_seconds", "step"))
    return Cost(
        state=(read_status(folder / STATUS_FILE) or Status(state="")).state or None,
        updates=int(updates) if math.isfinite(updates) else None,
        target_tokens=int(tokens) if math.isfinite(tokens) else None,
        seconds={kind: ledger[f"{kind}_seconds"] for kind in (*KINDS, "wall") if f"{kind}_seconds" in ledger},
        goodput=ledger.get("goodput"),
        device_hours={device: spent / 3600 for device, spent in devices.items()},
        tokens_per_second=tokens / seconds if seconds > 0 and math.isfinite(tokens) else None,
    )


def cost_table(costs: Mapping[str, Cost]) -> Table:
    """The costs of runs.

    Args:
        costs: by the runs' labels.
    """
    each = list(costs.values())
    longest = max((seconds for cost in each for seconds in cost.seconds.values()), default=0.0)
    unit, size, digits = ("hours", 3600, 3) if longest > 7200 else ("minutes", 60, 2)
    kinds = dict.fromkeys(kind for cost in each for kind in cost.seconds)
    devices = dict.fromkeys(device for cost in each for device in cost.device_hours)
    rows = {
        "updates": [plain(cost.updates, 0) for cost in each],
        "target tokens": [plain(cost.target_tokens, 0) for cost in each],
        "target tokens a second": [plain(cost.tokens_per_second, 0) for cost in each],
        **{f"{device} hours": [plain(cost.device_hours.get(device), 3) for cost in each] for device in devices},
        "goodput": ["-" if cost.goodput is None else f"{cost.goodput:.1%}" for cost in each],
        **{
            f"{unit}, {kind.replace('_', ' ')}": [
                plain(cost.seconds[kind] / size if kind in cost.seconds else None, digits) for cost in each
            ]
            for kind in kinds
        },
    }
    notes = ["goodput: the fraction of wall time spent on updates that count; hours of devices are summed over ranks"]
    return Table(head=["", *costs], rows=[[name, *row] for name, row in rows.items()], notes=notes)
