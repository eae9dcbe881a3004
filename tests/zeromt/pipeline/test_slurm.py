"""Steps as jobs, of a scheduler that is pretended: what cannot be brought about on a real one (tests/slurm/)."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Call
from tests.launcher.conftest import environment
from tests.launcher.slurm.scheduler import Scheduler
from tests.waiting import PATIENCE
from tests.zeromt.pipeline.conftest import STEPS, command, write

PLACE = {"kind": "slurm", "settings": {"gpus_per_node": 0}}


@pytest.fixture
def scheduler(folder: Path) -> Scheduler:
    """With a pipeline in its folder."""
    write(folder, {**STEPS, "upper": {**STEPS["upper"], "launch": "--time 5"}}, place=PLACE)
    return Scheduler(folder)


def start(scheduler: Scheduler) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(),
        cwd=scheduler.folder,
        env=environment(**scheduler.variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_jobs_outlive_the_driver(scheduler: Scheduler, call: Call) -> None:
    """The first job waits while one is killed, and ends when nobody drives; nothing is sent twice."""
    folder = scheduler.folder
    for job, kill in ((1, False), (1, True)):
        driver = start(scheduler)
        scheduler.wait_for(job)
        if kill:
            driver.kill()
            driver.communicate()
        else:
            driver.send_signal(signal.SIGTERM)
            assert "stopped; `zeromt pipeline my.yaml` goes on from here" in driver.communicate(timeout=PATIENCE)[1]
            assert driver.returncode == 75
            shown = call("status", "out/my", cwd=folder, **scheduler.variables).out
            assert re.search(r"^upper  sent.*, job 1$", shown, re.MULTILINE)
    scheduler.work(1)
    driver = start(scheduler)
    for job in (2, 3):
        scheduler.work(job)
    out, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, out + err
    assert (folder / "out/my/both").read_text() == "A\nB\nC\nA\nB\n"
    assert "#SBATCH --time=5\n" in scheduler.script(1)
    assert scheduler.asked().count("--parsable") == 3


def test_a_step_that_changed_waits_for_its_job_of_before(scheduler: Scheduler) -> None:
    """Both would write the same result."""
    driver = start(scheduler)
    scheduler.wait_for(1)
    driver.send_signal(signal.SIGTERM)
    driver.communicate(timeout=PATIENCE)
    (scheduler.folder / "in.txt").write_text("d\n")
    refused = start(scheduler)
    said = "steps.upper: has changed, and its job 1 of before is still in the queue; `scancel 1`"
    assert said in refused.communicate(timeout=PATIENCE)[1]
    assert refused.returncode == 2
    scheduler.leave(1)
    driver = start(scheduler)
    for job in (2, 3, 4):
        scheduler.work(job)
    assert driver.wait(PATIENCE) == 0
    assert (scheduler.folder / "out/my/both").read_text() == "D\nD\n"
