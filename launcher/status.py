"""`status.json` in a run's folder: what rank 0 says of the run, for whoever started it."""

import json
from dataclasses import dataclass
from pathlib import Path

EXIT_CODES = {"finished": 0, "refused": 2, "stopped": 75}
"""States that the ranks end in by their own decision, with the exit code of each."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Status:
    """The state that rank 0 wrote last: running, finished, stopped, failed or refused; and its error."""

    state: str
    error: str | None

    @property
    def is_settled(self) -> bool:
        """Whether the ranks ended by their own decision."""
        return self.state in EXIT_CODES

    @property
    def exit_code(self) -> int:
        """The exit code that stands for the state."""
        return EXIT_CODES.get(self.state, 1)


def read_status(path: Path, launch_id: str) -> Status | None:
    """What was written during this launch; None where nothing was, or nothing readable."""
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(written, dict) or written.get("launch_id") != launch_id:
        return None
    error = written.get("error")
    return Status(state=str(written.get("state")), error=None if error is None else str(error))
