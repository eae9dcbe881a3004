"""Activities: seconds to the ledger, by a clock of the test's own; and what becomes of a rank that exceeds a limit."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from configs import load_run
from configs.process.environment import PRIVATE
from tests.conftest import REPO, environment
from tests.house import sources
from tests.trainer.runs.test_ledger import Clock
from tests.waiting import PATIENCE
from trainer.ranks.activities import Activities
from trainer.runs.failure import find_stuck_ranks
from trainer.runs.ledger import Ledger

CONFIG = load_run("debug", ["supervision.step_minutes=2", "supervision.save_minutes=3"])
HANGS = {
    "holding the GIL in C": "re.match('(a+)+$', 'a' * 60 + 'b')",
    "asleep": "time.sleep(100)",
    "writing to a pipe that nobody reads": "os.write(2, b'x' * 10_000_000)",
    "on a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
}
RANK = """
import os, re, signal, sys, threading, time
from configs import load_run
from trainer.ranks.activities import Activities

activities = Activities(load_run("debug", ["supervision.save_minutes=0.01"]), rank=3)
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
with activities("step", step=120):
    time.sleep(1)  # more than a save may take
    with activities("save", step=120):
        {hang}
activities.close()
"""


def test_seconds_by_kind_and_none_twice(tmp_path: Path) -> None:
    """An activity inside another stops its clock; one that fails is counted too, and no update."""
    clock = Clock()
    activities = Activities(CONFIG, clock=clock)
    ledger = activities.ledger = Ledger(tmp_path / "ledger.json", clock=clock)
    with activities("setup"):
        clock.now += 1
    with activities("step", step=9):
        clock.now += 10
        with activities("save", step=8):
            assert activities.current == "save"
            clock.now += 100
        clock.now += 5
    with suppress(ZeroDivisionError), activities("evaluation"), activities("step", step=10):
        clock.now += 3
        raise ZeroDivisionError
    assert activities.current is None
    assert ledger.highest_step == 9
    for step in (8, 9, 10, 10):  # some were made before; the last after a rewind
        with activities("step", step=step):
            clock.now += step
    figures = ledger.figures()
    kinds = ("setup", "productive", "redone", "saving", "evaluating", "waiting_for_data")
    assert [figures[f"{kind}_seconds"] for kind in kinds] == [1, 28, 27, 100, 0, 0]


def test_limits() -> None:
    activities = Activities(CONFIG)
    assert [activities.minutes(name) for name in ("setup", "data", "step", "save", "shutdown")] == [3, 18, 18, 3, 3]
    with activities("step", step=1):
        pass
    assert [activities.minutes(name) for name in ("data", "step", "evaluation")] == [2, 2, 240]


@pytest.mark.parametrize("hang", HANGS)
def test_stuck_rank_leaves_its_stacks_and_ends(hang: str, tmp_path: Path) -> None:
    variables = environment() | {PRIVATE: str(tmp_path)}
    command = [sys.executable, "-c", RANK.format(hang=HANGS[hang])]
    with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(PATIENCE) == 1
        finally:
            process.kill()
    [(path, failure)] = find_stuck_ranks(tmp_path)
    assert path.name == "3_save_120_0.01.stacks"
    assert (failure.rank, failure.message) == (3, "stuck in save of update 120: its limit is 0.01 minutes")
    assert failure.traceback.count('File "<string>", line') == 1


def test_stacks_by_hand_without_harm_and_nothing_is_left(tmp_path: Path) -> None:
    """Of a folder of its own neither."""
    for private in ({PRIVATE: str(tmp_path)}, {"TMPDIR": str(tmp_path)}):
        command = [sys.executable, "-c", RANK.format(hang="os.kill(os.getpid(), signal.SIGUSR2)")]
        done = subprocess.run(command, env=environment() | private, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0
        assert done.stderr.count('File "<string>", line') == 1
        assert list(tmp_path.iterdir()) == []


def test_nothing_else_sets_faulthandlers_timer() -> None:
    """A process has one."""
    of_ours = [path for path in sources(REPO) if path.parts[0] != "tests"]
    files = [str(path) for path in of_ours if "dump_traceback_later(" in (REPO / path).read_text()]
    assert files == ["trainer/ranks/activities.py"]
