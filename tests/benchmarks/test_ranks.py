"""Programs that take turns: whether the others stand still, and what is counted."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.measure import tree
from benchmarks.training import ranks, trainers
from benchmarks.training.trainers import Work
from configs import UserError
from tests.waiting import wait_until

PROGRAM = """
import json, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
begun = time.perf_counter()
with open(sys.argv[1], "w") as metrics:
    for update in range(int(sys.argv[2])):
        time.sleep(0.02)
        line = {"kind": "train", "target_tokens": update, "total_seconds": time.perf_counter() - begun}
        print(json.dumps(line), file=metrics, flush=True)
child.kill()
sys.exit(int(sys.argv[3]) and "out of breath")
"""


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, *, updates: int = 10_000, fails: bool = False) -> ranks.Run:
    metrics = folder / "one" / "metrics.jsonl"
    metrics.parent.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(metrics), str(updates), str(int(fails))]
    monkeypatch.setattr(trainers, "our_command", lambda *_, **__: (command, dict(os.environ)))
    unused: dict[str, Any] = dict.fromkeys(("updates", "budget", "threads"), 1)
    return ranks.Run(Work(folder=folder, source=folder, target=folder, sizes={}, warm_up=3, **unused), "one")


def lives(pid: int) -> bool:
    found = subprocess.run(["ps", "-o", "stat=", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.startswith("Z")


def test_a_run_stands_still_but_in_its_turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with start(monkeypatch, tmp_path) as run:
        run.warm_up()
        processes = tree(run.pid)
        assert len(processes) == 2
        assert run.peak > 2**20
        metrics = tmp_path / "one" / "metrics.jsonl"
        before = len(trainers.updates_of(metrics))
        time.sleep(0.3)
        assert len(trainers.updates_of(metrics)) == before >= 3
        lines = run.turn(5)
        assert [line["target_tokens"] for line in lines] == list(range(before, before + len(lines)))
        assert len(lines) >= 5
    wait_until(lambda: not any(lives(pid) for pid in processes), "the end of its processes")


def test_a_run_that_ends_is_let_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with start(monkeypatch, tmp_path, updates=40) as run:  # on a busy machine some pass until it is stopped
        run.warm_up()
        assert run.turn(40)[-1]["target_tokens"] == 39
        run.finish()


def test_a_run_that_fails_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with start(monkeypatch, tmp_path, updates=40, fails=True) as run:
        run.warm_up()
        with pytest.raises(UserError, match="one: exit code 1\nout of breath"):
            run.turn(40)


def test_the_time_of_the_others_is_not_counted() -> None:
    def line(end: float) -> dict[str, float]:
        return {"total_seconds": end, "target_tokens": 100, "seconds_per_update": 0.9, "waiting_for_data": 0.1}

    turns = [[line(end) for end in ends] for ends in ((31.0, 32.0, 33.0, 34.0), (71.0, 72.0, 73.5, 75.0))]
    found = ranks.summary(turns)
    assert found["updates"] == 4
    assert found["tokens_per_second"] == pytest.approx(400 / 5)
    assert found["seconds_per_update"] == pytest.approx(5 / 4)
    assert found["logging"] == pytest.approx(1 - 3.6 / 5)
    assert found["waiting_for_data"] == pytest.approx(0.36 / 5)
