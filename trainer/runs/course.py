"""The course of a run and what it cost, from the files in its folder. Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from configs.components.training import metric_keys
from configs.process.document import Table, plain
from trainer.runs.layout import LEDGER_FILE, METRICS_FILE, STATUS_FILE
from trainer.runs.ledger import KINDS, read_device_seconds, read_figures
from trainer.runs.metrics_file import UNSIGNED, Line, mean_over, number, read_lines
from trainer.runs.status import read_status

TRAINING = "train/nll"
"""The loss without label smoothing if that is logged, so that runs with different smoothing can be compared."""


@dataclass(kw_only=True, slots=True)
class Course:
    """What a run has logged."""

    figures: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Points by figure."""
    validation: list[tuple[int, float]] = field(default_factory=list)
    """Points of the validation loss without label smoothing, as `TRAINING` is."""
    sets: list[str] = field(default_factory=list)
    """The sets of its newest evaluation that it names: none if there is only one."""
    series: str | None = None
    begins: int = 0
    """The step at which the newest series of scores began."""
    evaluated: Line = field(default_factory=dict)
    """The newest evaluation, with scores of it that came late."""


def read_course(folder: Path | None) -> Course:
    """What the run in a folder has logged; nothing without one.

    Raises:
        OSError: metrics.jsonl is there and cannot be read.
    """
    course = Course()
    for line in read_lines(folder / METRICS_FILE) if folder is not None else ():
        step = number(line, "step")
        if not math.isfinite(step):
            continue
        if line.get("kind") == "train":
            _add(course.figures, TRAINING, step, number(line, "nll" if "nll" in line else "loss"))
        elif line.get("kind") in ("evaluation", "score"):  # late ones, too
            for key in _figures_of(line):
                _add(course.figures, key, step, number(line, key))
            if line["kind"] == "evaluation":
                course.validation.append((int(step), number(line, "nll")))
                parts = [key.removeprefix("loss/") for key in line if key.startswith("loss/")]
                course.sets = [*mean_over(line)] or [name for name in parts if not name.startswith("pair/")]
                series = line.get("series")
                if isinstance(series, str) and series != course.series:
                    course.begins = 0 if course.series is None else int(step)
                    course.series = series
                course.evaluated = line
            elif line["step"] == course.evaluated.get("step"):
                course.evaluated = {**course.evaluated, **line}
    return course


def _figures_of(line: Line) -> list[str]:
    """The figures of an evaluation that are drawn, also those of its sets and language pairs."""
    names = ["loss", *(metric_keys(line) or [key for key in UNSIGNED if key in line])]
    parts = [key for key in line if "/" in key and key.partition("/")[0] in names]
    return [name for name in names if name in line] + parts


def _add(figures: dict[str, list[tuple[int, float]]], key: str, step: float, value: float) -> None:
    if math.isfinite(value):
        figures.setdefault(key, []).append((int(step), value))


@dataclass(kw_only=True, slots=True, frozen=True)
class Cost:
    """What a run cost, and how it ended."""

    state: str | None
    reason: str | None
    """Why it ended: a limit, a signal, a person, an error."""
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
    trained: Line = {}
    for line in read_lines(folder / METRICS_FILE, having='"train"') if folder is not None else ():
        trained = line if line.get("kind") == "train" else trained
    status = read_status(folder / STATUS_FILE) if folder is not None else None
    ledger = (read_figures(folder / LEDGER_FILE) if folder is not None else None) or {}
    devices = read_device_seconds(folder / LEDGER_FILE) if folder is not None else None
    tokens, seconds, updates = (number(trained, key) for key in ("total_target_tokens", "total_seconds", "step"))
    return Cost(
        state=None if status is None else status.state,
        reason=None if status is None else status.error or status.stop_reason or status.refusal,
        updates=int(updates) if math.isfinite(updates) else None,
        target_tokens=int(tokens) if math.isfinite(tokens) else None,
        seconds={kind: ledger[f"{kind}_seconds"] for kind in (*KINDS, "wall") if f"{kind}_seconds" in ledger},
        goodput=ledger.get("goodput"),
        device_hours={device: spent / 3600 for device, spent in (devices or {}).items()},
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
