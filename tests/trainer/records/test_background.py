"""Writers behind threads: none stalls training, and what is dropped is said."""

import logging
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from configs.components import Tracker
from configs.process import with_torch
from tests.conftest import environment
from tests.waiting import PATIENCE
from trainer.records import metrics as records
from trainer.records.metrics import BackgroundWriter, Metrics, end_all


def test_those_that_hang_stall_nothing_and_lose_what_is_too_much(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(with_torch, "_abandoned", [])
    monkeypatch.setattr(records, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(records, "MAX_QUEUED", 5)
    begun, go_on, steps = threading.Event(), threading.Event(), list[int]()

    def write(step: int) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        steps.append(step)

    hanging = MagicMock(write=write)
    writers = [BackgroundWriter(f"Slow {number}", lambda: hanging) for number in range(2)]
    for step in range(50):
        writers[0].put(lambda w, step=step: w.write(step))  # type: ignore[misc]
        assert begun.wait(PATIENCE), "the first is taken out of the queue"
    writers[1].put(lambda w: w.write(50))  # type: ignore[call-arg]
    with caplog.at_level(logging.WARNING):
        end_all(writers, lambda w: w.write(51))  # type: ignore[call-arg]
    go_on.set()
    assert caplog.messages == [
        "Slow 0 is too slow: records are dropped while 5 are queued; training continues",
        "Slow 0 did not finish in time and is abandoned; training continues",
        "Slow 0: 44 records were dropped",
        "Slow 1 did not finish in time and is abandoned; training continues",
    ]
    assert with_torch._abandoned == ["Slow 0", "Slow 1"], "the end of the process does not wait for them either"
    for writer in writers:
        writer._thread.join(PATIENCE)
    assert sorted(steps) == [0, 50], "one that was left writes nothing more: another start may be writing"


@pytest.mark.parametrize("method", ["open", "write", "event", "close"])
def test_one_that_raises_is_given_up_once(method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = MagicMock()
    getattr(writer, method).side_effect = ValueError(method)

    class Failing(Tracker):
        def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Any:
            writer.open()
            return writer

    metrics = Metrics(tmp_path, resume_step=0, trackers=[Failing(kind="failing")])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (metrics.train if method == "write" else metrics.event)(1, {"loss": 1.0})
        metrics.close()
    made = {"open": [], "close": ["event"] * 3}.get(method, [method])
    expected = ["open", *made] if method == "open" else ["open", *made, "close"]
    assert [name for name, *_ in writer.method_calls] == expected, "what was opened is closed, whatever it did"
    assert caplog.messages == [f"Failing failed and is dropped; training continues: ValueError: {method}"]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("from configs.process.with_torch import leave; sys.exit(leave(7))", 7),
        ("from trainer.main import main; sys.exit(main(['nothing.yaml']))", 2),
    ],
    ids=["finished", "refused rank"],
)
def test_a_process_that_left_one_behind_ends_though_its_package_waits(end: str, code: int) -> None:
    begin = "import atexit, sys, time; from configs.process.with_torch import abandon_at_exit; "
    begin += "atexit.register(time.sleep, 1000); abandon_at_exit('Slow'); print('all of it'); "
    command = [sys.executable, "-c", begin + end]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (code, b"all of it\n")
