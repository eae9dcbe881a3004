"""Rows 1, 3, 11, 17 and 21: processes that are killed, and what is left of the run."""

import os
import signal

import pytest

from tests.conftest import HOST, descendants, read_pairs
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened
from tests.waiting import wait_until

LAST = 40
SHORT = "training.max_updates=8"


def assert_same(run: Run, other: Run, *, pairs: bool = True) -> None:
    """Losses, pairs and final weights to the last bit."""
    assert run.losses() == other.losses()
    if pairs:
        assert read_pairs(run.folder) == read_pairs(other.folder)
    assert run.weights(LAST) == other.weights(LAST)


def test_killed_ranks(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Rows 1, 11: one rank in a step, the other between a save's shards and its commit.

    Every failure comes after progress, so that one restart is allowed each time (row 10).
    """
    run = make_run(
        Fault(point="accumulate", action="kill", rank=1, step=14),
        Fault(point="audit:os.rename", path="tmp-step-00000030", action="kill", rank=0),
        after=(undisturbed, 10),
    )
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    for number, rank in ((0, 1), (1, 0)):
        assert has_happened(run.plan, number, rank)
    assert f"rank 1 on {HOST} failed first: killed by SIGKILL" in done.err
    assert f"rank 0 on {HOST} failed first: killed by SIGKILL" in done.err
    assert_same(run, undisturbed)
    assert run.complete_steps() == [10, 20, 30, 40]
    assert run.leftovers() == []
    assert run.processes() == []


@pytest.mark.slow
def test_killed_loader(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Row 21."""
    run = make_run(
        Fault(point="data", action="kill_loader", rank=1, step=33),
        overrides=["stream.workers=1", "stream.prefetch_updates=1"],
        after=(undisturbed, 30),
    )
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    assert "was ended by SIGKILL" in done.err, "the loader process is not named"
    assert_same(run, undisturbed)
    assert run.processes() == []


@pytest.mark.slow
def test_killed_agent_leaves_nothing(make_run: MakeRun, launch: Launch) -> None:
    """Row 3: the ranks save what they have and end."""
    run = make_run(overrides=["training.max_updates=100000", "stream.workers=1", "supervision.save_minutes=0.5"])
    command = launch(run, restarts=0)
    wait_until(lambda: run.last_logged() >= 12)
    launcher = command.process.pid
    agent = next(pid for pid in descendants(launcher) if parent_of(pid) == launcher)
    everyone = run.processes()
    assert len(everyone) >= 6, "launcher, agent, two ranks, two loaders"
    os.kill(agent, signal.SIGKILL)
    done = command.finish()
    assert done.code == 1
    wait_until(lambda: run.processes() == [])
    saved = run.complete_steps()
    assert saved[:1] == [10]
    assert saved[-1] == run.last_logged() >= 12, "the updates since the last checkpoint are lost"
    assert run.leftovers() == []
    assert run.status()["state"] == "failed"
    assert "torchrun was killed by SIGKILL" in str(run.status()["error"])


def test_killed_agent_is_followed_by_a_restart(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Row 3: the new ranks wait until the old ones have saved and let go of the run."""
    slow = Fault(point="audit:os.rename", path="tmp-step-", action="sleep", value=2.0, rank=0)
    run = make_run(slow, after=(undisturbed, 30))
    command = launch(run, restarts=1)
    wait_until(lambda: run.last_logged() >= 32)
    launcher = command.process.pid
    os.kill(next(pid for pid in descendants(launcher) if parent_of(pid) == launcher), signal.SIGKILL)
    done = command.finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    assert "waiting for its ranks to save and end" in done.err
    assert "restart 1 of 1" in done.err
    assert "is being written by" not in done.err
    assert_same(run, undisturbed)
    assert run.leftovers() == []
    assert run.processes() == []


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_killed_during_retention(make_run: MakeRun, launch: Launch) -> None:
    """Row 17: two complete checkpoints are there whenever it is killed, and nothing else after the next save."""
    run = make_run(
        Fault(point="audit:os.rename", path="checkpoints/step-00000002", action="kill", rank=0),
        Fault(point="audit:shutil.rmtree", path="step-00000004", action="kill", rank=0),
        overrides=["checkpoint.every_updates=2", "checkpoint.keep_last=2", "checkpoint.keep_best=0", SHORT],
    )
    command = launch(run, restarts=2)
    for number in (0, 1):
        wait_until(lambda number=number: has_happened(run.plan, number, 0))  # type: ignore[misc]
        assert len(run.complete_steps()) >= 2  # a start takes seconds: nothing is written meanwhile
    done = command.finish()
    assert done.code == 0, done.err[-4000:]
    assert run.complete_steps() == [6, 8]
    assert run.leftovers() == []
