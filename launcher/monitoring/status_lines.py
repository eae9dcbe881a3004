"""A run's status as lines for people and as JSON for programs."""

import dataclasses
import time
from typing import Any

from configs.process.text import visible, visible_name
from launcher.monitoring.progress import Progress
from launcher.monitoring.run_status import ACTIVE, Overview, RunStatus
from trainer.runs.failure import Failure
from trainer.runs.metrics_file import Score, Shown

_NUM_CHECKPOINTS = 5
_CLOCK_SECONDS = 60.0


def to_json(overview: Overview) -> dict[str, Any]:
    """The fields of state and progress side by side, `job` and `last_failure` as objects or null."""
    failure = dataclasses.asdict(overview.last_failure) if overview.last_failure else None
    if failure is not None:
        del failure["traceback"], failure["says_all"]
    return {
        **dataclasses.asdict(overview.status),
        **dataclasses.asdict(overview.progress),
        **{name: _score_to_json(getattr(overview.progress, name)) for name in ("last_score", "best_score")},
        "job": dataclasses.asdict(overview.job) if overview.job else None,
        "last_failure": failure,
    }


def to_lines(overview: Overview) -> list[str]:
    """One line for each thing that is known."""
    status, progress = overview.status, overview.progress
    shown = {"run": status.run, "state": _state(status)}
    if (job := overview.job) is not None:
        left = f"{job.time_left} to its time limit" if job.time_left else None
        shown["job"] = ", ".join(filter(None, [f"{job.id} {job.state}", job.reason, left]))
    if progress.share is not None:
        shown["done"] = progress.share + ("" if progress.fraction is None else f" ({progress.fraction:.1%})")
    if progress.phase is not None:
        shown["phase"] = progress.phase
    if status.state in ACTIVE:
        shown |= _speed(progress)
    if progress.last_score is not None:
        shown["score"] = _scores(progress.last_score, progress.best_score, overview.shown)
    if status.refusal:
        shown["refused"] = "the last start: " + status.refusal.replace("\n", "; ")
    if status.error:
        shown["error"] = status.error.replace("\n", "; ")
    elif overview.last_failure is not None:
        shown["last failure"] = _failure(overview.last_failure)
    shown["checkpoints"] = _checkpoints(status.checkpoints, progress.checkpoint_age)
    if status.ledger:
        shown["time"] = _ledger(status.ledger)
    rows = [*shown.items(), *(("stuck", line.removeprefix("zeromt: ")) for line in status.stuck)]
    return [f"{name:<12} {visible(text)}" for name, text in rows]


def _state(status: RunStatus) -> str:
    about = []
    if status.state == "stopped" and status.stop_reason:
        about.append(f"by {status.stop_reason}")
    if status.state == "finished" and status.stop_reason:
        about.append(status.stop_reason)
    if status.state == "empty":
        about.append("never started")
    if status.updated is not None:
        about.append(f"written {ago(time.time() - status.updated)}")
    if status.pid is not None and status.state in ACTIVE:
        about.append(f"process {status.pid}" + (f" on {status.host}" if status.host else ""))
    if status.stop_requested and status.state in ACTIVE:
        about.append("asked to stop")
    return status.state + (f" ({', '.join(about)})" if about else "")


def _speed(progress: Progress) -> dict[str, str]:
    rates = []
    if progress.updates_per_second is not None:
        rates.append(f"{progress.updates_per_second:.3g} updates/s")
    if progress.target_tokens_per_second is not None:
        rates.append(f"{progress.target_tokens_per_second:,.0f} target tokens/s")
    shown = {"rate": ", ".join(rates)} if rates else {}
    if progress.seconds_left is not None:
        shown["time left"] = duration(progress.seconds_left)
    return shown


def _score_to_json(score: Score | None) -> dict[str, Any] | None:
    return None if score is None else {"step": score.step, **score.figures, "series": score.series}


def _scores(last: Score, best: Score | None, shown: Shown) -> str:
    text = ", ".join(shown.text(key, value) for key, value in last.figures.items() if value is not None)
    text += f" at step {last.step}"
    if last.mean_over:
        text += f" (means over {', '.join(map(visible_name, last.mean_over))})"
    if best is None or best.step == last.step:
        return f"{text}, the best so far"
    return f"{text}; best: {shown.text(shown.best_by, best.figures[shown.best_by] or 0.0)} at step {best.step}"


def _failure(failure: Failure) -> str:
    return f"rank {failure.rank} on {failure.host}, {ago(time.time() - failure.time)}: {failure.first_line}"


def _checkpoints(steps: list[int], age: float | None) -> str:
    newest_first = [str(step) for step in reversed(steps[-_NUM_CHECKPOINTS:])]
    if not newest_first:
        return "none"
    if age is not None:
        newest_first[0] += f" ({ago(age)})"
    more = f" and {len(steps) - len(newest_first)} older" if len(steps) > len(newest_first) else ""
    return ", ".join(newest_first) + more


def _ledger(ledger: dict[str, float]) -> str:
    kinds = {key.removesuffix("_seconds"): s for key, s in ledger.items() if key.endswith("_seconds")}
    total = kinds.pop("wall")
    seconds = ", ".join(f"{kind.replace('_', ' ')} {duration(s)}" for kind, s in kinds.items() if s)
    return f"{duration(total)}, goodput {ledger['goodput']:.1%}: {seconds}"


def ago(seconds: float) -> str:
    """How long since something; clocks that differ by a minute are taken for one."""
    return f"{duration(seconds)} ago" if seconds > -_CLOCK_SECONDS else f"{duration(-seconds)} ahead of this clock"


def duration(seconds: float) -> str:
    """As a person would say it."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 360_000 else f"{seconds / 86400:.1f} days"
