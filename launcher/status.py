"""`status.json` in a run's folder: what rank 0 says of the run, for whoever started it."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

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


def write_failed(path: Path, launch_id: str, error: str) -> None:
    """Say what the ranks could not: that all of them ended without a word."""
    before = read_status(path, launch_id)
    status = {
        "state": "failed",
        "exit_code": 1,
        "error": error,
        "step": None if before is None else before.step,
        "pid": os.getpid(),
        "updated": time.time(),
        "launch_id": launch_id,
    }
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(status) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError:  # a full disk: the launcher's exit code says it too
        beside.unlink(missing_ok=True)
