"""`status.json` in a run's folder: what the run is doing, for the launcher and other commands. Without torch."""

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from configs.process.files.inside import read_json, write_text
from configs.process.signals import STOPPED
from configs.process.streams import hidden
from configs.process.text import to_json
from trainer.runs.layout import STATUS_FILE

LAUNCH_ID = "ZEROMT_LAUNCH_ID"
"""Environment variable with the id of a launch."""
BY_A_PERSON = ("stop file", "SIGINT")
"""Reasons of a stop that do not come from a scheduler."""
EXIT_CODES = {"finished": 0, "refused": 2, "stopped": STOPPED}
"""States in which ranks end by their own decision, with their exit codes."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Progress:
    """How far a run has come, how fast and how good it is: what rank 0 wrote after its last log line, evaluation or
    save."""

    share: str | None = None
    """Updates done, and the share of the nearest limit: `67 updates, 02:46 of 10:00`."""
    fraction: float | None = None
    """The share from 0 to 1."""
    seconds_left: float | None = None
    """To the nearest limit, at the mean pace of this start."""
    updates_per_second: float | None = None
    """That pace, with evaluations and saves."""
    target_tokens_per_second: float | None = None
    """Of the last log line, without them."""
    train_loss: float | None = None
    """Of the last log line."""
    phase: str | None = None
    """The name of the phase, in a run with phases."""
    last_score: str | None = None
    best_score: str | None = None
    """In words: `BLEU 21.50 at step 400`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Status:
    """The status that rank 0 wrote last."""

    state: str = "empty"
    """`running`, `finished`, `stopped`, `failed` or `refused`; empty if it does not say."""
    error: str | None = None
    step: int | None = None
    """Updates done."""
    updated: float | None = None
    """Time of writing, in seconds since the epoch."""
    pid: int | None = None
    host: str | None = None
    launch_id: str | None = None
    job_id: str | None = None
    """Id of the job that the process ran in."""
    stop_reason: str | None = None
    """Why a stopped run stopped: "stop file" (a user asked), or the ranks' first signal, or `ORPHANED`; of a finished
    one, the limit that it reached."""
    refusal: str | None = None
    """Why the last start was refused; if set, the other fields are about the run before that start."""
    refused_job: str | None = None
    """The job of the refused start."""
    progress: Progress = Progress()

    @property
    def is_over(self) -> bool:
        """Whether the run was not meant to go on; after a scheduler's signal it is, after some time in the queue."""
        return self.state == "finished" or (self.state == "stopped" and self.stop_reason in BY_A_PERSON)

    @property
    def is_settled(self) -> bool:
        """Whether the ranks ended by their own decision."""
        return self.state in EXIT_CODES

    @property
    def exit_code(self) -> int:
        """The exit code of the state."""
        return exit_code(self.state)


def exit_code(state: str) -> int:
    """The exit code of a process that ends in this state."""
    return EXIT_CODES.get(state, 1)


def read_status(path: Path, launch_id: str | None = None) -> Status | None:
    """The written status, only of the given launch if one is given; None if there is none or it is unreadable.

    A refused start keeps the status from before it, which is returned if no launch is given.
    """
    written = _read(path)
    refusal = _part(written, "refusal")
    if launch_id is not None and refusal.get("launch_id") == launch_id:
        return _status({**refusal, "state": "refused"})
    if not written or (launch_id is not None and written.get("launch_id") != launch_id):
        return None
    return _status(written)


def read_ended(path: Path) -> Status | None:
    """The status before a start that has not made a step yet; otherwise like `read_status`."""
    before = _part(_read(path), "before")
    return _status(before) if before else read_status(path)


def finished_step(path: Path) -> int | None:
    """The step at which a run finished; None if it did not."""
    ended = read_ended(path)
    return ended.step if ended is not None and ended.state == "finished" else None


def _status(written: Mapping[str, Any]) -> Status:
    refusal, progress = _part(written, "refusal"), _part(written, "progress")
    told = {"refusal": refusal.get("error"), "refused_job": refusal.get("job_id")}
    return Status(**{**_known(Status, {**written, **told}), "progress": Progress(**_known(Progress, progress))})


def _known(kind: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that a tree has, each of its type: the folder may be anybody's."""
    types = get_type_hints(kind)
    return {name: value for name, value in tree.items() if name in types and isinstance(value, types[name])}


def _part(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping in a tree; empty if there is none."""
    return part if isinstance(part := tree.get(name), dict) else {}


def write_status(
    folder: Path,
    state: str,
    *,
    error: str | None = None,
    step: int | None = None,
    launch_id: str | None = None,
    stop_reason: str | None = None,
    is_cause: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write `status.json` atomically.

    If several ranks fail, the first status stands, as does a refusal: the later ones are victims. A refusal keeps the
    status from before and is added to it; without a run's folder it is not recorded.

    Args:
        folder: the run's.
        state: running, finished, stopped, failed or refused.
        error: what went wrong.
        step: updates done, if known; otherwise a running or failed run keeps the last one.
        launch_id: the launch that it is about; default: this process's.
        stop_reason: why a run stopped; see `Status`.
        is_cause: the error is known to be the cause of the failure written before.
        progress: of a running run; otherwise the last one is kept.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / STATUS_FILE
    launch_id = launch_id or os.environ.get(LAUNCH_ID)
    outcome = _outcome_before(path, launch_id)
    before = None if launch_id is None else read_status(path, launch_id)
    if state == "failed" and before is not None and before.state in ("failed", "refused") and not is_cause:
        return
    if state == "refused" and not folder.is_dir():
        return
    says_step = step is not None or state in ("finished", "stopped")  # for these it is the saved step
    last = _read(path)
    status = {
        "state": state,
        "error": error and hidden(error),
        "step": step if says_step else last.get("step"),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "updated": time.time(),
        "launch_id": launch_id,
        "job_id": os.environ.get("SLURM_JOB_ID") or None,
        "stop_reason": stop_reason,
        "progress": asdict(progress) if progress is not None else last.get("progress"),
    }
    if state == "refused" and outcome is not None:
        keys = ("error", "pid", "host", "updated", "launch_id", "job_id")
        status = {**outcome, "refusal": {key: status[key] for key in keys}}
    elif outcome is not None and not says_step:
        status["before"] = outcome  # until this start has made a step, the earlier outcome counts
    _write(folder, status)


def withdraw_status(folder: Path, *, step: int, reason: str) -> None:
    """Restore the `status.json` from before this start, which had nothing to do.

    A run that is at its end without being marked as finished (stopped there, killed, or with a lowered limit) is marked
    now.

    Args:
        folder: the run's.
        step: updates done.
        reason: the limit that was reached.

    Raises:
        OSError: it cannot be written.
    """
    outcome = _outcome_before(folder / STATUS_FILE, os.environ.get(LAUNCH_ID))
    if outcome is not None and outcome.get("state") == "finished":
        _write(folder, outcome)
    else:
        write_status(folder, "finished", step=step, stop_reason=reason)


def _outcome_before(path: Path, launch_id: str | None) -> dict[str, Any] | None:
    """The status from before this launch; None if there was none."""
    tree = _read(path)
    is_this_start = tree.get("launch_id") == launch_id if launch_id else tree.get("pid") == os.getpid()
    if is_this_start or (tree.get("state") == "running" and _part(tree, "before")):
        tree = _part(tree, "before")
    if not tree or tree.get("state") == "refused":
        return None
    return {key: value for key, value in tree.items() if key not in ("before", "refusal")}


def _read(path: Path) -> dict[str, Any]:
    """What the file says; nothing if it cannot be read."""
    try:
        written = read_json(path)
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}


def _write(folder: Path, status: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / STATUS_FILE, to_json(status) + "\n")
