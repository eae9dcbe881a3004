"""Row 7: a rank that hangs ends itself, is named, and is started again."""

import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault, has_happened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SECONDS = 20
LIMITS = [f"supervision.step_minutes={SECONDS / 60}", "supervision.save_minutes=1"]


@pytest.mark.parametrize(
    ("point", "action", "said"),
    [
        ("save", "hold_gil", "save of update 15: its limit is 1"),
        ("forward", "hold_gil", "step of update 15: its limit is 0.333333"),
        ("forward", "fill_pipe", "step of update 15: its limit is 0.333333"),
        ("forward", "stop", "step of update 15: its limit is 0.333333"),
    ],
)
def test_a_rank_that_hangs(
    point: str, action: str, said: str, undisturbed: Run, make_run: MakeRun, launch: Launch
) -> None:
    """The other rank hangs too, but waits: it is not the cause. One that is stopped cannot say that it is."""
    run = make_run(
        Fault(point=point, action=action, rank=1, step=15),
        overrides=[*LIMITS, "engine.communication_timeout_minutes=3.5"],
        after=(undisturbed, 10),
    )
    done = launch(run, restarts=1).finish(1200)
    assert done.code == 0, done.err[-4000:]
    assert has_happened(run.plan, 0, 1)
    rank = 0 if action == "stop" else 1
    assert f"zeromt: rank {rank} is stuck in {said} minutes" in done.err
    assert f"rank {rank} on {HOST} failed first: stuck in {said}" in done.err
    if rank:
        assert f"_{action}" in done.err, "no stack of the rank that hangs"
        assert f"_{action}" in next(run.folder.glob("failures/*/1_*.stacks")).read_text()
    run.assert_same(undisturbed)
