"""Row 7: a rank that hangs is named with its section, ended, and started again."""

import re

from tests.conftest import read_pairs
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened

SECONDS = 6


def test_stopped_rank_and_held_gil(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    run = make_run(
        Fault(point="accumulate", action="stop", rank=1, step=14),
        Fault(point="save", action="hold_gil", rank=0, step=30),
        overrides=[f"supervision.step_minutes={SECONDS / 60}", f"supervision.save_minutes={SECONDS / 60}"],
    )
    done = launch(run, restarts=1).finish(120)
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    assert has_happened(run.plan, 1, 0)
    everything = done.out + done.err
    assert re.search(r"rank 1 is stuck: section 'step' of step 14 began [67] s ago", everything)
    assert re.search(r"rank 0 is stuck: section 'save' of step 30 began \d+ s ago", everything)
    assert "rank 1 failed first: it was killed by SIGKILL" in done.err
    assert "rank 0 failed first: it was killed by SIGKILL" in done.err
    assert "_hold_gil" in everything, "no stack of the rank that held the GIL"
    assert run.losses() == undisturbed.losses()
    assert read_pairs(run.folder) == read_pairs(undisturbed.folder)
    assert run.weights(40) == undisturbed.weights(40)
    assert run.processes() == []
