"""Steps as jobs, of a scheduler that is pretended: what cannot be brought about on a real one (tests/slurm/)."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Call, Command, Start
from tests.launcher.conftest import environment
from tests.launcher.slurm.scheduler import Scheduler
from tests.zeromt.pipeline.conftest import STEPS, command, write

PLACE = {"kind": "slurm", "settings": {"gpus_per_node": 0}}


@pytest.fixture
def scheduler(folder: Path) -> Scheduler:
    """With a pipeline in its folder."""
    write(folder, {**STEPS, "upper": {**STEPS["upper"], "launch": "--time 5"}}, place=PLACE)
    return Scheduler(folder)


@pytest.fixture
def drive(scheduler: Scheduler, start: Start) -> Callable[[], Command]:
    variables = environment(**scheduler.variables)
    return lambda: start(*command(), cwd=scheduler.folder, variables=variables)


def test_jobs_outlive_the_driver(scheduler: Scheduler, drive: Callable[[], Command], call: Call) -> None:
    """The first job waits while one is killed, and ends when nobody drives; nothing is sent twice."""
    folder = scheduler.folder
    for job, kill in ((1, False), (1, True)):
        driver = drive()
        scheduler.wait_for(job)
        driver.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        done = driver.finish()
        if not kill:
            assert "stopped; `zeromt pipeline my.yaml` continues from here" in done.err
            assert done.code == 75
            shown = call("status", "out/my", cwd=folder, **scheduler.variables).out
            assert re.search(r"^upper  sent.*, job 1$", shown, re.MULTILINE)
    scheduler.work(1)
    driver = drive()
    for job in (2, 3):
        scheduler.work(job)
    assert driver.finish().code == 0
    assert (folder / "out/my/both").read_text() == "A\nB\nC\nA\nB\n"
    assert "#SBATCH --time=5\n" in scheduler.script(1)
    assert scheduler.asked().count("--parsable") == 3


def test_a_step_that_changed_waits_for_its_job_of_before(scheduler: Scheduler, drive: Callable[[], Command]) -> None:
    """Both would write the same result."""
    driver = drive()
    scheduler.wait_for(1)
    driver.process.send_signal(signal.SIGTERM)
    driver.finish()
    (scheduler.folder / "in.txt").write_text("d\n")
    refused = drive().finish()
    assert "steps.upper: has changed, and its job 1 of before is still in the queue; `scancel 1`" in refused.err
    assert refused.code == 2
    scheduler.leave(1)
    driver = drive()
    for job in (2, 3, 4):
        scheduler.work(job)
    assert driver.finish().code == 0
    assert (scheduler.folder / "out/my/both").read_text() == "D\nD\n"
