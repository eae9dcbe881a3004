"""Writers behind threads: none stalls training, and what is dropped is said."""

import logging
import subprocess
import sys
import threading
import time

import pytest

from tests.conftest import environment
from trainer.records.background import BackgroundWriter, join_all
from trainer.records.metrics import NoMetrics
from trainer.runs.process import leaving

pytestmark = pytest.mark.alone


class Writing(NoMetrics):
    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.steps: list[int] = []

    def train(self, step: int, figures: object) -> None:
        self.go_on.wait(20)
        self.steps.append(step)


def test_one_that_hangs_stalls_nothing_and_loses_what_is_too_much(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "_left_behind", [])
    writing = Writing()
    writer = BackgroundWriter("Slow", lambda: writing, max_queued=5)
    begin = time.monotonic()
    for step in range(50):
        writer.put(lambda w, step=step: w.train(step, {}))  # type: ignore[misc]
        time.sleep(0.001 if step else 0.2)  # the first is taken out of the queue
    with caplog.at_level(logging.WARNING):
        writer.end()
        writer.join(0.1)
    assert time.monotonic() - begin < 10
    writing.go_on.set()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Slow is too slow: records are dropped while 5 are queued; training goes on",
        "Slow did not finish within 0 s and is abandoned; training goes on",
        "Slow: 44 records were dropped",
    ]
    writer.join(10)
    assert writing.steps == [0], "one that was left writes nothing more: another start may be writing"


def test_those_that_hang_side_by_side_have_the_same_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaving, "_left_behind", [])
    both = [Writing(), Writing()]
    writers = [BackgroundWriter(f"Slow {n}", lambda one=one: one) for n, one in enumerate(both)]  # type: ignore[misc]
    for writer in writers:
        writer.put(lambda w: w.train(0, {}))
    with caplog.at_level(logging.WARNING):
        join_all(writers, seconds=1)
    for one in both:
        one.go_on.set()
    assert leaving._left_behind == ["Slow 0", "Slow 1"], "the end of the process does not wait for them either"
    assert [record.getMessage() for record in caplog.records] == [
        f"Slow {n} did not finish within 1 s and is abandoned; training goes on" for n in range(2)
    ]


def test_all_that_waits_is_written_in_order_before_the_end() -> None:
    writing = Writing()
    writing.go_on.set()
    writer = BackgroundWriter("Quick", lambda: writing)
    for step in range(500):
        writer.put(lambda w, step=step: w.train(step, {}))  # type: ignore[misc]
    join_all([writer])
    assert writing.steps == list(range(500))


def test_opening_may_take_its_time_or_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def leave() -> Writing:
        time.sleep(0.2)
        raise SystemExit("no key")

    begin = time.monotonic()
    writer = BackgroundWriter("Leaving", leave)
    assert time.monotonic() - begin < 0.1
    join_all([writer])
    writer.put(lambda w: w.close())
    assert [record.getMessage() for record in caplog.records] == [
        "Leaving cannot be opened and is dropped; training goes on: SystemExit: no key"
    ]


class Full(NoMetrics):
    def __init__(self) -> None:
        self.closed = 0

    def train(self, step: int, figures: object) -> None:
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        self.closed += 1
        raise OSError(28, "No space left on device")


def test_one_that_is_given_up_is_closed_too(caplog: pytest.LogCaptureFixture) -> None:
    """What it has taken so far may lie in a buffer, and a package may wait for its own end at the process's."""
    full = Full()
    writer = BackgroundWriter("Full", lambda: full)
    for _ in range(3):
        writer.put(lambda w: w.train(0, {}))
    join_all([writer])
    assert full.closed == 1
    assert [record.getMessage() for record in caplog.records] == [
        "Full failed and is dropped; training goes on: [Errno 28] No space left on device"
    ]


def test_a_process_that_left_one_behind_ends_though_its_package_waits() -> None:
    code = "import atexit, sys, time; from trainer.runs.process.leaving import leave, leave_behind; "
    code += "atexit.register(time.sleep, 100); leave_behind('Slow'); print('all of it'); sys.exit(leave(7))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, timeout=50)
    assert (done.returncode, done.stdout) == (7, b"all of it\n")
