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
        """Whether the run was not meant to resume; after a scheduler's signal it does, after some time in the queue."""
        return self.state == "finished" or (self.state == "stopped" and self.stop_reason in BY_A_PERSON)

    @property
    def exit_code(self) -> int:
        """The exit code of the state."""
        return EXIT_CODES.get(self.state, 1)


def read_status(path: Path, launch_id: str | None = None) -> Status | None:
    """The written status, only of the given launch if one is given; None if there is none or it is unreadable.

    A refused start keeps the status from before it, which is returned if no launch is given.
    """
    written = _read(path)
    refusal = _part(written, "refusal")
    if launch_id is not None and refusal.get("launch_id") == launch_id:
        return Status(**known(Status, {**refusal, "state": "refused"}))
    if not written or (launch_id is not None and written.get("launch_id") != launch_id):
        return None
    parts = {
        "progress": Progress(**known(Progress, _part(written, "progress"))),
        "refusal": refusal.get("error"),
        "refused_job": refusal.get("job_id"),
    }
    return Status(**known(Status, {**written, **parts}))


def known(kind: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that a tree has, each of its type: the folder may be anybody's."""
    types = get_type_hints(kind)
    return {name: value for name, value in tree.items() if name in types and isinstance(value, types[name])}


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

    If several ranks of a start fail, the first word stands: the later ones are victims. A refusal is added to the
    status from before the start, which stays; without a run's folder it is not recorded.

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
    ours, last = None if launch_id is None else read_status(path, launch_id), _read(path)
    if ours is not None and ours.state in ("failed", "refused") and state in ("running", "failed") and not is_cause:
        return
    if state == "refused" and not folder.is_dir():
        return
    status = {
        "state": state,
        "error": error and hidden(error),
        "step": step if step is not None or state in ("finished", "stopped") else last.get("step"),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "updated": time.time(),
        "launch_id": launch_id,
        "job_id": os.environ.get("SLURM_JOB_ID") or None,
        "stop_reason": stop_reason,
        "progress": last.get("progress") if progress is None else asdict(progress),
    }
    is_of_this_start = ours is not None or (launch_id is None and last.get("pid") == os.getpid())
    if state == "refused" and last and (not is_of_this_start or "refusal" in last):
        status = {**last, "refusal": status}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, to_json(status) + "\n")


def _part(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A mapping in a tree; empty if there is none."""
    return part if isinstance(part := tree.get(name), dict) else {}


def _read(path: Path) -> dict[str, Any]:
    """What the file says; nothing if it cannot be read."""
    try:
        written = read_json(path)
    except (OSError, ValueError):
        return {}
    return written if isinstance(written, dict) else {}
