"""`zeromt status`: a run in lines, the runs of a folder in a table, either as JSON."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs import UserError
from configs.process.files import naming
from configs.process.text import to_json, visible, visible_name
from launcher.monitoring.look import ACTIVE, Overview, read_overview, runs_in
from trainer.runs.layout import STATUS_FILE
from trainer.runs.status import Progress

RUNS = "runs"
"""The folder whose runs are shown where none is named."""
CLOCK_SECONDS = 60.0
"""By how much clocks may differ."""
FIRST_LEFT_OUT = ("written", "updates/s", "of")
"""Columns that a narrow terminal has no room for, the least important first."""
NAME = 24
"""The most characters of a run's name in the table."""


def status(*, run: str | None, as_json: bool) -> int:
    """`zeromt status`: print what a run is doing, or the runs of a folder as a table.

    Args:
        run: a run's folder, or one that has runs in it; by default `runs`, or this folder.
        as_json: print JSON: an object, or a list of them.

    Raises:
        UserError: there is no run.
    """
    folder = Path(run or (RUNS if Path(RUNS).is_dir() else "."))
    with naming("RUN"):
        runs = [] if (folder / STATUS_FILE).exists() else runs_in(folder)
        if runs:
            seen = [read_overview(one, asks_slurm=False) for one in runs]
            width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else sys.maxsize
            print(to_json([one.to_json() for one in seen]) if as_json else table(folder, seen, width=width))
            return 0
        if run is None:
            raise UserError(f"RUN: there is no run in {folder}; give a run's folder, or one with runs in it")
        one = read_overview(folder)
        if one.state == "empty" and (folder / "index.json").is_file():
            raise UserError(f"RUN: {run!r} is a dataset; `zeromt inspect {run}` shows it")
    print(to_json(one.to_json()) if as_json else "\n".join(lines_of(one)))
    return 0


def lines_of(seen: Overview) -> list[str]:
    """One line for each thing that is known."""
    status, progress, failure = seen.status, seen.status.progress, seen.last_failure
    shown: dict[str, str | None] = {"run": seen.run, "state": state_of_run(seen)}
    if (job := seen.job) is not None:
        left = f"{job.time_left} to its time limit" if job.time_left else None
        shown["job"] = ", ".join(filter(None, [f"{job.id} {job.state}", job.reason, left]))
    if progress.share is not None:
        shown["done"] = progress.share + ("" if progress.fraction is None else f" ({progress.fraction:.1%})")
    shown["phase"] = progress.phase
    if seen.state in ACTIVE:
        shown["rate"] = ", ".join(rates_of(progress))
        shown["time left"] = None if progress.seconds_left is None else duration(progress.seconds_left)
    shown["score"] = progress.last_score
    shown["best"] = progress.best_score
    shown["refused"] = status.refusal and "the last start: " + status.refusal.replace("\n", "; ")
    shown["error"] = status.error and status.error.replace("\n", "; ")
    if failure is not None and status.error is None:
        shown["last failure"] = f"{failure}, {ago(time.time() - failure.time)}"
    if seen.checkpoint is not None and seen.checkpoint_age is not None:
        shown["checkpoint"] = f"step {seen.checkpoint:,}, {ago(seen.checkpoint_age)}"
    shown["time"] = None if seen.ledger is None else use_of_time(seen.ledger)
    return [f"{name:<12} {visible(text)}" for name, text in shown.items() if text]


def state_of_run(seen: Overview) -> str:
    """The state, and what belongs to it."""
    status, is_active = seen.status, seen.state in ACTIVE
    about = [
        status.stop_reason if seen.state in ("finished", "stopped") else None,
        "never started" if seen.state == "empty" else None,
        None if status.updated is None else f"written {ago(time.time() - status.updated)}",
        f"process {status.pid} on {status.host}" if is_active and status.pid is not None else None,
        "asked to stop" if is_active and seen.stop_requested else None,
    ]
    said = ", ".join(filter(None, about))
    return f"{seen.state} ({said})" if said else seen.state


def rates_of(progress: Progress) -> Iterator[str]:
    """How fast a run is."""
    if progress.updates_per_second is not None:
        yield f"{progress.updates_per_second:.3g} updates/s"
    if progress.target_tokens_per_second is not None:
        yield f"{progress.target_tokens_per_second:,.0f} target tokens/s"


def use_of_time(ledger: dict[str, float]) -> str:
    """What a run's time was spent on."""
    kinds = {key.removesuffix("_seconds"): s for key, s in ledger.items() if key.endswith("_seconds")}
    total = kinds.pop("wall")
    seconds = ", ".join(f"{kind.replace('_', ' ')} {duration(s)}" for kind, s in kinds.items() if s)
    return f"{duration(total)}, goodput {ledger['goodput']:.1%}: {seconds}"


def table(folder: Path, seen: Sequence[Overview], *, width: int) -> str:
    """A table of the runs of a folder, at most `width` characters wide."""
    rows = [row_of(folder, one) for one in seen]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for name in FIRST_LEFT_OUT:
        if sum(widths.values()) + 2 * (len(widths) - 1) > width:
            del widths[name]
    lines = [{name: name for name in widths}, *rows]
    return "\n".join("  ".join(f"{line[name]:<{widths[name]}}" for name in widths).rstrip() for line in lines)


def row_of(folder: Path, seen: Overview) -> dict[str, str]:
    """A run's row, by column."""
    status, progress = seen.status, seen.status.progress
    name = visible_name(str(Path(seen.run).relative_to(folder)))
    left = progress.seconds_left if seen.state in ACTIVE else None
    row = {
        "run": name if len(name) <= NAME else f"{name[: NAME - 1]}…",
        "state": seen.state,
        "done": None if progress.fraction is None else f"{progress.fraction:.0%}",
        "of": progress.share,
        "loss": None if progress.train_loss is None else f"{progress.train_loss:.3f}",
        "best": progress.best_score,
        "updates/s": None if progress.updates_per_second is None else f"{progress.updates_per_second:.3g}",
        "written": None if status.updated is None else ago(time.time() - status.updated),
        "time left": None if left is None else duration(left),
    }
    return {key: visible(value or "-") for key, value in row.items()}


def ago(seconds: float) -> str:
    """How long since something; clocks that differ by a minute are taken for one."""
    return f"{duration(seconds)} ago" if seconds > -CLOCK_SECONDS else f"{duration(-seconds)} ahead of this clock"


def duration(seconds: float) -> str:
    """As a person would say it."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 360_000 else f"{seconds / 86400:.1f} days"
