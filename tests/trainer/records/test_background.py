"""Writers behind threads: none stalls training, and what is dropped is said."""

import logging
import re
import subprocess
import sys
import threading

import pytest

from configs.process import with_torch
from tests.conftest import environment
from tests.waiting import PATIENCE
from trainer.records.background import CLOSE_SECONDS, BackgroundWriter, join_all
from trainer.records.metrics import NoMetrics


class Writing(NoMetrics):
    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.steps: list[int] = []

    def train(self, step: int, figures: object) -> None:
        self.begun.set()
        self.go_on.wait(PATIENCE)
        self.steps.append(step)


def test_one_that_hangs_stalls_nothing_and_loses_what_is_too_much(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(with_torch, "_abandoned", [])
    writing = Writing()
    writer = BackgroundWriter("Slow", lambda: writing, max_queued=5)
    for step in range(50):
        writer.put(lambda w, step=step: w.train(step, {}))  # type: ignore[misc]
        assert writing.begun.wait(PATIENCE), "the first is taken out of the queue"
    with caplog.at_level(logging.WARNING):
        writer.end()
        writer.join(0.1)
    writing.go_on.set()
    assert said_in(caplog) == [
        "Slow is too slow: records are dropped while 5 are queued; training goes on",
        "Slow did not finish within N s and is abandoned; training goes on",
        "Slow: 44 records were dropped",
    ]
    writer.join(PATIENCE)
    assert writing.steps == [0], "one that was left writes nothing more: another start may be writing"


def said_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [re.sub(r"within \d+ s", "within N s", record.getMessage()) for record in caplog.records]


class Joined(BackgroundWriter):
    """Notes how long it was waited for."""

    seconds = 0.0

    def join(self, seconds: float = CLOSE_SECONDS) -> None:
        self.seconds = seconds
        super().join(seconds)


def test_those_that_hang_side_by_side_have_the_same_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(with_torch, "_abandoned", [])
    both = [Writing(), Writing()]
    writers = [Joined(f"Slow {n}", lambda one=one: one) for n, one in enumerate(both)]  # type: ignore[misc]
    for writer in writers:
        writer.put(lambda w: w.train(0, {}))
    with caplog.at_level(logging.WARNING):
        join_all([*writers], seconds=1)
    assert sum(writer.seconds for writer in writers) < 1.01
    for one in both:
        one.go_on.set()
    assert with_torch._abandoned == ["Slow 0", "Slow 1"], "the end of the process does not wait for them either"
    assert said_in(caplog) == [
        f"Slow {n} did not finish within N s and is abandoned; training goes on" for n in range(2)
    ]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("from configs.process.with_torch import leave; sys.exit(leave(7))", 7),
        ("from zeromt.cli.main import main; sys.exit(main(['train', 'nothing.yaml']))", 2),
        ("from trainer.main import main; sys.exit(main(['nothing.yaml']))", 2),
    ],
    ids=["finished", "refused", "refused rank"],
)
def test_a_process_that_left_one_behind_ends_though_its_package_waits(end: str, code: int) -> None:
    begin = "import atexit, sys, time; from configs.process.with_torch import abandon_at_exit; "
    begin += "atexit.register(time.sleep, 1000); abandon_at_exit('Slow'); print('all of it'); "
    command = [sys.executable, "-c", begin + end]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (code, b"all of it\n")
