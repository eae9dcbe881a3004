"""Rows 8, 9, 10 and 27: an exception and a lack of memory on one rank, once and always; a port in use."""

import pytest

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault

ADVICE = ("stream.source_tokens=512", "stream.target_tokens=512", "engine.offload_optimizer")


def test_exception_on_one_rank(make_run: MakeRun, launch: Launch) -> None:
    """Row 8: the root cause first, then its victims."""
    run = make_run(Fault(point="accumulate", action="raise", rank=1, step=2, value="the root cause"))
    done = launch(run, restarts=0).finish()
    assert done.code == 1
    first, second, third, *rest = done.err.splitlines()[1:]  # after what is started
    assert first == f"zeromt: rank 1 on {HOST} failed first: RuntimeError: injected: the root cause"
    assert second == "zeromt: stopped because of it: rank 0"
    assert third == "zeromt: its traceback:"
    assert rest[-2] == "    RuntimeError: injected: the root cause", "nothing of the victims"
    assert rest[-1] == (
        "zeromt: nothing was saved yet: once the cause is fixed, the same command begins again; "
        f"logs: {run.folder / 'logs'}"
    )
    assert run.status()["error"] == f"rank 1 on {HOST}: RuntimeError: injected: the root cause"
    assert run.status()["state"] == "failed"
    assert run.processes() == []


@pytest.mark.slow
def test_out_of_memory_on_one_rank_again_and_again(make_run: MakeRun, launch: Launch) -> None:
    """Rows 9 and 10: says which settings to lower, and is not started again for ever."""
    run = make_run(Fault(point="accumulate", action="out_of_memory", rank=1, step=9, times=0))
    done = launch(run, restarts=1).finish()
    assert done.code == 1
    assert done.err.count(f"rank 1 on {HOST} failed first") == 2
    assert "no new checkpoint since step 5" in done.err
    for words in ADVICE:
        assert words in done.err
    assert str(run.status()["error"]).startswith(f"rank 1 on {HOST}: ")
    assert run.complete_steps() == [5]


def test_port_in_use(undisturbed: Run) -> None:
    """Row 27: that run was started while torch's own port and the one that MASTER_PORT named were taken."""
    assert undisturbed.complete_steps() == [5, 10, 15, 20]
    assert undisturbed.status()["state"] == "finished"
