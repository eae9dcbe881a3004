"""Rows 8 and 27: an exception on one rank; a port in use."""

from tests.conftest import HOST
from tests.faults.conftest import Launch, MakeRun, Run
from tests.faults.injected import Fault


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


def test_port_in_use(undisturbed: Run) -> None:
    """Row 27: that run was started while torch's own port and the one that MASTER_PORT named were taken."""
    assert undisturbed.complete_steps() == [5, 10, 15, 20]
    assert undisturbed.status()["state"] == "finished"
