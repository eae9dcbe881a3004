"""What the end of a job means, on whatever cluster."""

import pytest

from launcher.agents.peers import LOST_NODE
from launcher.jobs import End, ending_of
from trainer.runs.status import Status


def status(state: str, **more: str) -> Status:
    return Status(**{"state": state, "error": None, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "code", "signal", "end"),
    [
        (status("finished"), 0, "none", End.FINISHED),
        (None, 0, "none", End.FINISHED),
        (status("finished"), 137, "USR1", End.FINISHED),  # killed on its way out
        (None, 2, "none", End.REFUSED),
        (status("running"), 2, "USR1", End.REFUSED),
        (status("stopped", stop_reason="SIGTERM"), 75, "TERM", End.CANCELLED),
        (status("stopped", stop_reason="stop file"), 75, "USR1", End.STOPPED),
        (status("stopped", stop_reason="SIGUSR1"), 75, "none", End.INTERRUPTED),
        (None, 143, "USR1", End.INTERRUPTED),
        (status("failed", error=f"{LOST_NODE}node 1 (n2)"), 1, "none", End.LOST_NODE),
        (status("failed", error="rank 0: x"), 1, "none", End.FAILED),
        (None, 75, "none", End.FAILED),  # nobody wrote why, and no cluster asked
    ],
)
def test_ends(found: Status | None, code: int, signal: str, end: End) -> None:
    assert ending_of(found, code, signal=signal).end is end


def test_what_goes_on() -> None:
    assert {end for end in End if end.goes_on} == {End.INTERRUPTED, End.LOST_NODE}
