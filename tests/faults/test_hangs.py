"""Row 7: a rank that hangs is named with its section, ended, and started again."""

import re

import pytest

from tests.conftest import HOST, Finished, read_pairs
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened

SECONDS = 20


LIMITS = [f"supervision.step_minutes={SECONDS / 60}", f"supervision.save_minutes={SECONDS / 60}"]


def assert_same(run: Run, other: Run) -> None:
    """Losses, pairs and final weights to the last bit, and no process left."""
    assert run.losses() == other.losses()
    assert read_pairs(run.folder) == read_pairs(other.folder)
    assert run.weights(40) == other.weights(40)
    assert run.processes() == []


def go_through(run: Run, launch: Launch, *, rank: int) -> Finished:
    """A run of which one rank is struck, and that is restarted once."""
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, rank)
    return done


@pytest.mark.slow
def test_stopped_rank(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    run = make_run(Fault(point="accumulate", action="stop", rank=1, step=14), overrides=LIMITS)
    done = go_through(run, launch, rank=1)
    assert re.search(r"rank 1 is stuck: activity 'step' of step 14 began \d+ s ago", done.out + done.err)
    assert f"rank 1 on {HOST} failed first: killed by SIGKILL: stuck" in done.err
    assert_same(run, undisturbed)


@pytest.mark.slow
def test_held_gil(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """tests/trainer/ranks/test_watchdog.py has short ones, of a process and its monitor alone."""
    run = make_run(Fault(point="save", action="hold_gil", rank=0, step=30), overrides=LIMITS)
    done = go_through(run, launch, rank=0)
    everything = done.out + done.err
    assert re.search(r"rank 0 is stuck: activity 'save' of step 30 began \d+ s ago", everything)
    assert f"rank 0 on {HOST} failed first: killed by SIGKILL: stuck" in done.err
    assert "_hold_gil" in everything, "no stack of the rank that held the GIL"
    assert_same(run, undisturbed)
