"""Row 7: a rank that hangs is named with its section, ended, and started again."""

import re

import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened

SECONDS = 20

LIMITS = [f"supervision.step_minutes={SECONDS / 60}", f"supervision.save_minutes={SECONDS / 60}"]


@pytest.mark.slow
def test_held_gil(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """tests/trainer/ranks/test_watchdog.py has other hangs, of a process and its monitor alone."""
    run = make_run(Fault(point="save", action="hold_gil", rank=0, step=15), overrides=LIMITS)
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    everything = done.out + done.err
    assert re.search(r"rank 0 is stuck: activity 'save' of step 15 began \d+ s ago", everything)
    assert f"rank 0 on {HOST} failed first: stuck" in done.err
    assert "_hold_gil" in everything, "no stack of the rank that held the GIL"
    run.assert_same(undisturbed)
