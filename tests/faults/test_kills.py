"""Rows 1, 3, 11 and 21: processes that are killed, and what is left of the run."""

from pathlib import Path

import psutil
import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened
from tests.waiting import wait_until


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
def test_killed_loader(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Row 21."""
    run = make_run(
        Fault(point="data", action="kill_loader", rank=1, step=18),
        overrides=["stream.workers=1", "stream.prefetch_updates=1"],
        after=(undisturbed, 15),
    )
    done = launch(run, restarts=1).finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    assert "was ended by SIGKILL" in done.err, "the loader process is not named"
    run.assert_same(undisturbed)


@pytest.mark.slow
def test_killed_agent_is_followed_by_a_restart(
    undisturbed: Run, make_run: MakeRun, launch: Launch, tmp_path: Path
) -> None:
    """Row 3: the new ranks wait until the old ones have saved and let go of the run."""
    run = make_run(
        Fault(point="audit:os.rename", path="tmp-step-", action="sleep", value=2.0, rank=0),
        Fault(point="data", action="wait", step=18, value=str(tmp_path / "killed")),
        after=(undisturbed, 15),
    )
    command = launch(run, restarts=1)
    wait_until(lambda: has_happened(run.plan, 1, 0) and has_happened(run.plan, 1, 1))
    psutil.Process(command.process.pid).children()[0].kill()
    (tmp_path / "killed").touch()
    done = command.finish()
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    assert "waiting for its ranks to save and end" in done.err
    assert "restart 1 of 1" in done.err
    assert "is being written by" not in done.err
    run.assert_same(undisturbed)
    assert run.leftovers() == []
