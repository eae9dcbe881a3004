"""Rows 4 and 5: asked to stop in an evaluation, in a save, and before a rank can hear it."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import REPO, Start, read_metrics, torchrun
from tests.faults.conftest import Launch, MakeRun, Run, injected, launch_command
from tests.faults.injected import Fault, has_happened
from tests.waiting import wait_until


def test_asked_in_evaluation_and_twice_in_a_save(undisturbed: Run, make_run: MakeRun, launch: Launch) -> None:
    """Rows 4 and 5."""
    run = make_run(
        Fault(point="evaluate", action="ask", rank=0, step=10, value="SIGUSR1"),
        Fault(point="save", action="ask", rank=0, step=15, value="SIGTERM"),
        Fault(point="saved", action="ask", rank=0, step=15, value="SIGTERM"),
        after=(undisturbed, 5),
    )
    done = launch(run).finish()
    assert done.code == 75, done.err[-4000:]
    assert has_happened(run.plan, 0, 0)
    assert "SIGUSR1: asking the ranks to save and stop" in done.err
    assert run.complete_steps() == [5, 10], "every rank saves the step of the evaluation"
    assert (run.status()["state"], run.status()["stop_reason"]) == ("stopped", "SIGTERM")
    assert read_metrics(run.folder, "evaluation") == [], "the evaluation was not interrupted"

    done = launch(run).finish()
    assert done.code == 75, done.err[-4000:]
    assert has_happened(run.plan, 2, 0)
    assert "SIGTERM: already stopping" in done.err
    assert run.status()["stop_reason"] == "SIGTERM"
    steps = run.complete_steps()
    assert steps == [5, 10, 15, run.last_logged()]
    assert run.last_logged() <= 17, "it went on after it was asked"
    assert run.pointer() == f"step-{steps[-1]:08d}"
    assert run.leftovers() == []
    assert [line["step"] for line in read_metrics(run.folder, "evaluation")] == [10], "made up for at the next start"

    last = run.last_logged()
    assert run.losses() == {step: loss for step, loss in undisturbed.losses().items() if step <= last}
    assert run.pairs() == {step: pairs for step, pairs in undisturbed.pairs().items() if step <= last}
    assert run.processes() == []


@pytest.mark.slow
def test_asked_before_a_rank_can_hear_it(make_run: MakeRun, start: Start, shim: Path, tmp_path: Path) -> None:
    """Row 4: while Python itself starts, a signal would end the rank, and the others would wait for it."""
    go_on, pids = tmp_path / "go-on", [tmp_path / f"pid-{rank}" for rank in (0, 1)]
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, time\n"
        "rank = os.environ.get('RANK')\n"
        f"pid = pathlib.Path({str(tmp_path)!r}, f'pid-{{rank}}')\n"
        "if rank and not pid.exists():\n"
        "    pid.write_text(f'{os.getpid()}\\n')\n"
        f"    while rank == '1' and not pathlib.Path({str(go_on)!r}).exists(): time.sleep(0.05)\n"
    )
    run = make_run()
    env = ["env", f"PYTHONPATH={tmp_path}:{shim}:{REPO}"]
    command = start(*injected(shim, run, *env, *launch_command(run)))
    wait_until(lambda: all(pid.exists() and pid.read_text().endswith("\n") for pid in pids))
    first, second = (int(pid.read_text()) for pid in pids)
    wait_until(lambda: sigterm_is(first, "SigCgt"))  # rank 0 can hear it now
    os.kill(command.process.pid, signal.SIGTERM)
    assert not sigterm_is(second, "SigCgt")
    time.sleep(1.0)
    go_on.touch()
    done = command.finish()
    assert done.code == 75, done.err[-4000:]
    assert run.complete_steps() == []
    wait_until(lambda: run.processes() == [])


def sigterm_is(pid: int, mask: str) -> bool:
    """Whether SIGTERM is in one of the kernel's masks of a process."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(mask)]
    return bool(int(line.partition(":")[2], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("SIGUSR1", -signal.SIGUSR1), ("SIGTERM", 1)])
def test_torchrun_is_asked(name: str, code: int, make_run: MakeRun, start: Start, shim: Path) -> None:
    """Row 4, without the launcher: torchrun dies of SIGUSR1, and passes the others on; its ranks save all the same."""
    run = make_run(
        overrides=["training.max_updates=100000", "checkpoint.every_updates=0", "evaluation.every_updates=0"]
    )
    command = start(*injected(shim, run, *torchrun(2, "-m", "trainer", "debug", *run.settings)))
    wait_until(lambda: run.last_logged() >= 3)
    os.kill(command.process.pid, signal.Signals[name])
    done = command.finish()
    assert done.code == code, done.err[-4000:]
    wait_until(lambda: run.processes() == [])
    assert run.complete_steps() == [run.last_logged()], "the updates are lost"
    assert run.leftovers() == []
    reason = "torchrun is gone" if name == "SIGUSR1" else name
    assert (run.status()["state"], run.status()["stop_reason"]) == ("stopped", reason)
