"""Activities: limits to the watchdog, seconds to the ledger, by a clock of the test's own."""

from pathlib import Path
from typing import get_args

import pytest

from configs import SupervisionSection
from trainer.ranks.activities import Activities, ActivityName
from trainer.ranks.watchdog import Watchdog
from trainer.runs.ledger import Ledger

LIMITS = SupervisionSection(setup_minutes=1, step_minutes=2, save_minutes=3, evaluation_minutes=4)


class Recorder(Watchdog):
    """A watchdog that is never started, and keeps what it was told."""

    def __init__(self) -> None:
        super().__init__(0, on=False)
        self.told: list[tuple[str, float, int, float]] = []

    def enter(self, activity: str, seconds: float, step: int, *, spent: float = 0.0) -> None:
        self.told.append((activity, seconds, step, spent))

    def leave(self) -> None:
        self.told.append(("", 0, 0, 0))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    return Ledger(tmp_path / "ledger.json", clock=clock)


def test_limits(ledger: Ledger, clock: Clock) -> None:
    watchdog = Recorder()
    activities = Activities(watchdog, ledger, LIMITS, clock=clock)
    for name in (*get_args(ActivityName), "step"):
        with activities(name, step=5):
            pass
    assert [told[:3] for told in watchdog.told if told[0]] == [
        ("setup", 60, 5),
        ("data", 240, 5),
        ("step", 240, 5),  # the first of a start
        ("save", 180, 5),
        ("evaluation", 240, 5),
        ("shutdown", 60, 5),
        ("step", 120, 5),
    ]
    assert [told[0] for told in watchdog.told][1::2] == [""] * 7


def test_activity_inside_another_stops_its_clock(ledger: Ledger, clock: Clock) -> None:
    watchdog = Recorder()
    activities = Activities(watchdog, ledger, LIMITS, clock=clock)
    with activities("step", step=9):
        clock.now += 10
        with activities("save", step=8):
            clock.now += 100
        clock.now += 5
    figures = ledger.figures()
    assert (figures["productive_seconds"], figures["saving_seconds"]) == (15, 100)
    assert watchdog.told == [("step", 240, 9, 0), ("save", 180, 8, 0), ("step", 240, 9, 10), ("", 0, 0, 0)]


def test_steps_made_before_are_redone(ledger: Ledger, clock: Clock) -> None:
    ledger.note_step(2)
    activities = Activities(Recorder(), ledger, LIMITS, clock=clock)
    for step in (1, 2, 3):
        with activities("step", step=step):
            clock.now += step
    with activities("step", step=3):  # after a rewind
        clock.now += 10
    figures = ledger.figures()
    assert (figures["redone_seconds"], figures["productive_seconds"], ledger.highest_step) == (13, 3, 3)


def test_every_kind(ledger: Ledger, clock: Clock) -> None:
    activities = Activities(Recorder(), ledger, LIMITS, clock=clock)
    for seconds, name in enumerate(("setup", "data", "save", "evaluation"), start=1):
        with activities(name):  # type: ignore[arg-type]
            clock.now += seconds
    figures = ledger.figures()
    kinds = ("setup", "waiting_for_data", "saving", "evaluating")
    assert [figures[f"{kind}_seconds"] for kind in kinds] == [1, 2, 3, 4]


def test_activity_that_fails_is_left_and_counted(ledger: Ledger, clock: Clock) -> None:
    watchdog = Recorder()
    activities = Activities(watchdog, ledger, LIMITS, clock=clock)

    def fail() -> None:
        with activities("setup"), activities("step", step=4):
            clock.now += 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert watchdog.told[-1][0] == ""
    assert (ledger.figures()["productive_seconds"], ledger.highest_step) == (3, 0)


def test_without_a_ledger() -> None:
    watchdog = Recorder()
    with Activities(watchdog, None, LIMITS)("step", step=1):
        assert watchdog.told[-1][0] == "step"
    assert watchdog.told[-1][0] == ""
