"""`status.json` in a run's folder: what the run is doing, for whoever started it. Without torch, for the launcher."""

import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

LAUNCH_ID = "ZEROMT_LAUNCH_ID"
"""Environment variable with the name of one start of the ranks."""
STATUS_FILE = "status.json"
EXIT_CODES = {"finished": 0, "refused": 2, "stopped": 75}
"""States that the ranks end in by their own decision, with the exit code of each."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Status:
    """What rank 0 wrote last."""

    state: str
    """running, finished, stopped, failed or refused."""
    error: str | None
    step: int | None = None
    """Updates done."""
    updated: float | None = None
    """Seconds since the epoch at which it was written."""
    pid: int | None = None
    host: str | None = None
    launch_id: str | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the ranks ended by their own decision."""
        return self.state in EXIT_CODES

    @property
    def exit_code(self) -> int:
        """The exit code that stands for the state."""
        return EXIT_CODES.get(self.state, 1)


def read_status(path: Path, launch_id: str | None = None) -> Status | None:
    """What was written, during this launch if one is named; None where nothing was, or nothing readable."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(written, dict) or (launch_id is not None and written.get("launch_id") != launch_id):
        return None

    found = {key: written.get(key) for key in ("error", "step", "updated", "pid", "host", "launch_id")}
    return Status(
        state=str(written.get("state")),
        error=None if found["error"] is None else str(found["error"]),
        step=found["step"] if isinstance(found["step"], int) else None,
        updated=float(found["updated"]) if isinstance(found["updated"], int | float) else None,
        pid=found["pid"] if isinstance(found["pid"], int) else None,
        host=found["host"] if isinstance(found["host"], str) else None,
        launch_id=found["launch_id"] if isinstance(found["launch_id"], str) else None,
    )


def write_status(
    folder: Path,
    state: str,
    *,
    exit_code: int,
    error: str | None = None,
    step: int | None = None,
    launch_id: str | None = None,
) -> None:
    """Write `status.json`, whole or not at all.

    Of several ranks that fail, or refuse to start, the first word stands: the later ones are its victims.

    Args:
        folder: the run's.
        state: running, finished, stopped, failed or refused.
        exit_code: what the process ends with in that state.
        error: what went wrong.
        step: updates done, where that is known; else what this launch wrote before stands.
        launch_id: which start of the ranks it is about; that of this process unless given.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / STATUS_FILE
    launch_id = launch_id or os.environ.get(LAUNCH_ID)
    before = None if launch_id is None else read_status(path, launch_id)
    if state == "failed" and before is not None and before.state in ("failed", "refused"):
        return
    status = {
        "state": state,
        "exit_code": exit_code,
        "error": error,
        "step": before.step if step is None and before is not None else step,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "updated": time.time(),
        "launch_id": launch_id,
    }
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{STATUS_FILE}.{os.getpid()}"
    try:
        beside.write_text(json.dumps(status) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
