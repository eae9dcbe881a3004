"""The runs of a folder, a line each: state, share, loss, best score, speed, age, time left. Does not import torch."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs.process.text import visible_name
from launcher.monitoring.progress import read_progress
from launcher.monitoring.run_status import ACTIVE, Overview, read_overview, read_run
from launcher.monitoring.status_lines import ago, duration
from trainer.runs.layout import STATUS_FILE
from trainer.runs.metrics_file import read_shown

_DEEP = ("*", "*/*")
"""Where runs are in a folder: below it, or in the folder of a name with a slash."""
_FIRST_LEFT_OUT = ("written", "updates/s", "of")
"""What a narrow terminal has no room for, the least first."""
_NAME = 24


def runs_in(folder: Path) -> list[Path]:
    """The runs of a folder, the one that was written last first."""
    found = {path.parent: _written(path) for pattern in _DEEP for path in folder.glob(f"{pattern}/{STATUS_FILE}")}
    return sorted(found, key=lambda run: (-found[run], run))


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def look(run: Path) -> Overview:
    """A run; SLURM is asked only where the folder does not say how it ended."""
    status = read_run(run)
    if status.state in (*ACTIVE, "died"):
        return read_overview(run)
    progress = read_progress(run, status.checkpoints, step=status.step)
    return Overview(status=status, progress=progress, job=None, last_failure=None, shown=read_shown(run))


def table(folder: Path, runs: Sequence[Path], *, width: int) -> str:
    """The table of some runs of a folder, for so many columns."""
    rows = [_row(folder, look(run)) for run in runs]
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for name in _FIRST_LEFT_OUT:
        if sum(widths.values()) + 2 * (len(widths) - 1) > width:
            del widths[name]
    lines = [{name: name for name in widths}, *rows]
    return "\n".join("  ".join(f"{line[name]:<{widths[name]}}" for name in widths).rstrip() for line in lines)


def _row(folder: Path, overview: Overview) -> dict[str, str]:
    status, progress, shown = overview.status, overview.progress, overview.shown
    name = visible_name(str(Path(status.run).relative_to(folder)))
    best = progress.best_score
    score = None if best is None else best.figures.get(shown.best_by)
    is_active = status.state in ACTIVE
    row: dict[str, Any] = {
        "run": name if len(name) <= _NAME else f"{name[: _NAME - 1]}…",
        "state": status.state,
        "done": None if progress.fraction is None else f"{progress.fraction:.0%}",
        "of": progress.share,
        "loss": None if progress.train_loss is None else f"{progress.train_loss:.3f}",
        "best": None if best is None or score is None else f"{shown.text(shown.best_by, score)} at {best.step:,}",
        "updates/s": progress.updates_per_second and f"{progress.updates_per_second:.3g}",
        "written": None if status.updated is None else ago(time.time() - status.updated),
        "time left": duration(progress.seconds_left) if is_active and progress.seconds_left is not None else None,
    }
    return {key: value or "-" for key, value in row.items()}
