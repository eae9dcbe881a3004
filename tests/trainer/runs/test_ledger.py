"""The ledger, by a clock of the test's own."""

import json
from pathlib import Path

import pytest

from trainer.runs.ledger import KINDS, Ledger, read_ledger
from trainer.runs.status import read_status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_goes_on_over_restarts_and_counts_what_nobody_worked(tmp_path: Path) -> None:
    """Also by devices, whose seconds count every rank and no time without a process."""
    clock = Clock()
    path = tmp_path / "ledger.json"
    first = Ledger(path, clock=clock, ranks=4, device="GPU")
    first.add("productive", 50)
    first.note_step(30)
    clock.now = 1060
    first.write()
    first.add("productive", 99)  # never written: the process was killed
    first.note_step(60)
    clock.now = 1200
    second = Ledger(path, clock=clock, started=1180, ranks=2, device="CPU")
    second.note_step(20)
    assert second.highest_step == 30
    second.add("redone", 10)
    second.write()
    figures = second.figures()
    spent = {"stalled": 120, "setup": 20, "productive": 50, "redone": 10}
    assert {kind: s for kind in KINDS if (s := figures[f"{kind}_seconds"])} == spent
    assert (figures["wall_seconds"], figures["goodput"], figures["restarts"]) == (200, 0.25, 1)
    assert read_ledger(path) == {**figures, "highest_step": 30, "devices": {"GPU": 200, "CPU": 2 * (20 + 10)}}
    clock.now = 500  # set back
    third = Ledger(path, clock=clock, ranks=1, device="GPU").figures()
    assert (third["wall_seconds"], third["restarts"]) == (200, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.json"]


@pytest.mark.parametrize(
    ("before", "stalled"),
    [
        ({"state": "finished"}, 0),
        ({"state": "stopped", "stop_reason": "stop file"}, 0),
        ({"state": "stopped", "stop_reason": "SIGINT"}, 0),
        ({"state": "stopped", "stop_reason": "SIGUSR1"}, 120),  # it waits in a scheduler's queue
        ({"state": "running"}, 120),  # it was killed
        ({"state": "failed"}, 120),
    ],
)
def test_after_a_run_that_was_over_nobody_was_to_work(tmp_path: Path, before: dict[str, str], stalled: float) -> None:
    clock = Clock()
    Ledger(tmp_path / "ledger.json", clock=clock).write()
    (tmp_path / "status.json").write_text(json.dumps({**before, "error": None}))
    status = read_status(tmp_path / "status.json")
    assert status is not None
    clock.now += 120
    again = Ledger(tmp_path / "ledger.json", clock=clock, was_over=status.is_over)
    assert again.figures()["stalled_seconds"] == stalled
