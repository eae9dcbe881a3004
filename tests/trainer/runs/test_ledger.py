"""The ledger, by a clock of the test's own."""

import json
from pathlib import Path

import pytest

from trainer.runs.ledger import KINDS, Ledger, read_device_seconds, read_figures
from trainer.runs.status import read_status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_seconds_by_kind_and_goodput(tmp_path: Path) -> None:
    clock = Clock()
    ledger = Ledger(tmp_path / "ledger.json", clock=clock, started=990.0)
    for kind, seconds in {"productive": 70.0, "saving": 5.0, "evaluating": 10.0, "waiting_for_data": 5.0}.items():
        ledger.add(kind, seconds)  # type: ignore[arg-type]
    figures = ledger.figures()
    assert figures["setup_seconds"] == 10
    assert figures["wall_seconds"] == 100
    assert figures["goodput"] == 0.7
    assert sum(figures[f"{kind}_seconds"] for kind in KINDS) == figures["wall_seconds"]


def test_goes_on_over_restarts_and_counts_what_nobody_worked(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "ledger.json"
    first = Ledger(path, clock=clock)
    first.add("productive", 50)
    first.note_step(30)
    clock.now = 1060
    first.write()
    first.add("productive", 99)  # never written: the process was killed
    first.note_step(60)
    clock.now = 1200
    second = Ledger(path, clock=clock, started=1180)
    assert second.highest_step == 30
    second.note_step(20)
    assert second.highest_step == 30
    figures = second.figures()
    assert (figures["stalled_seconds"], figures["setup_seconds"], figures["productive_seconds"]) == (120, 20, 50)
    second.add("redone", 10)
    assert second.figures()["goodput"] == 0.25
    assert second.figures()["restarts"] == 1
    second.write()
    assert read_figures(path) == second.figures()
    assert Ledger(path, clock=clock).figures()["restarts"] == 2, "one that is never written counts nothing"
    assert Ledger(path, clock=clock).figures()["restarts"] == 2
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


def test_clock_that_is_set_back_counts_nothing(tmp_path: Path) -> None:
    clock = Clock()
    Ledger(tmp_path / "ledger.json", clock=clock).write()
    clock.now = 500
    assert Ledger(tmp_path / "ledger.json", clock=clock).figures()["wall_seconds"] == 0


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"seconds": {}, "highest_step": 1, "time": 1}', "\x00\xff", json.dumps({"seconds": 1})],
)
def test_file_that_is_no_ledger_is_replaced(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "ledger.json"
    path.write_bytes(content.encode("latin1"))
    assert read_figures(path) is None
    ledger = Ledger(path)
    assert "ledger.json is not a ledger, a new one is begun" in caplog.text
    ledger.add("productive", 1)
    ledger.write()
    assert (read_figures(path) or {})["productive_seconds"] == 1


@pytest.mark.parametrize("value", [-1, "nan", "inf", None])
def test_impossible_seconds_are_no_ledger(tmp_path: Path, value: object) -> None:
    path = tmp_path / "ledger.json"
    Ledger(path).write()
    tree = json.loads(path.read_text())
    tree["seconds"]["saving"] = value
    path.write_text(json.dumps(tree))
    assert read_figures(path) is None


def test_folder_that_is_gone_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(tmp_path / "gone" / "ledger.json")
    ledger.write()
    ledger.write()
    assert caplog.text.count("cannot be written, training goes on") == 1


def test_seconds_of_devices_count_every_rank_and_no_idle_time(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "ledger.json"
    first = Ledger(path, clock=clock, ranks=4, device="GPU")
    first.add("productive", 50)
    first.write()
    clock.now = 1200
    second = Ledger(path, clock=clock, started=1180, ranks=2, device="CPU")
    second.add("saving", 5)
    second.write()
    assert read_device_seconds(path) == {"GPU": 200, "CPU": 2 * (20 + 5)}
    third = Ledger(path, clock=clock, ranks=1, device="GPU")
    third.add("evaluating", 10)
    third.write()
    assert read_device_seconds(path) == {"GPU": 210, "CPU": 50}
