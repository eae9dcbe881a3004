"""Rows 1, 3, 11 and 21: processes that are killed, and what is left of the run."""

import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened


def test_killed_rank(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Rows 1 and 11: between a save's shards and its commit."""
    kill = Fault(point="audit:os.rename", path="tmp-step-00000015", action="kill", rank=0)
    run = make_run(kill, after=(undisturbed, 10))
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    assert f"rank 0 on {HOST} failed first: was ended by SIGKILL" in done.err
    run.assert_same(undisturbed)
    assert run.complete_steps() == [5, 10, 15, 20]
    assert run.leftovers() == []


@pytest.mark.slow
def test_killed_loader(make_run: MakeRun, launch: Launch) -> None:
    """Row 21. Its updates are large, or the pipe would hold all of a small run."""
    settings = ["stream.workers=1", "stream.source_tokens=4096", "stream.target_tokens=4096"]
    calm = make_run(overrides=settings)
    assert launch(calm).finish().code == 0
    run = make_run(Fault(point="data", action="kill_loader", rank=1, step=8), overrides=settings, name="killed")
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    assert "was ended by SIGKILL" in done.err, "the loader process is not named"
    run.assert_same(calm)
