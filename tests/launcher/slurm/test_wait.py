"""`zeromt launch slurm --wait`, with a scheduler that is pretended: how it ends, and what the next one adopts."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.slurm.record import begin, held, jobs_of
from tests.conftest import Call
from tests.launcher.conftest import command_line, environment
from tests.launcher.slurm.scheduler import Scheduler
from tests.waiting import PATIENCE

LAUNCH = ["launch", "slurm", "--site", "cpu"]
COMMAND = ["bash", "-c", "echo 'it''s' && exit $(cat code)"]
Waiting = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    return Scheduler(tmp_path)


@pytest.fixture
def waiting(scheduler: Scheduler) -> Waiting:
    """Starts a command line that waits for a job."""

    def start(*words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command_line(words),
            cwd=scheduler.folder,
            env=environment(**scheduler.variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_it_ends_as_the_command_and_is_adopted(scheduler: Scheduler, waiting: Waiting, call: Call) -> None:
    """Killed while the job waits; it ends with nobody there; then what is told once is not told again."""
    (scheduler.folder / "code").write_text("3")
    words = [*LAUNCH, "--wait", "--", *COMMAND]
    first = waiting(*words)
    scheduler.wait_for(1)
    first.kill()
    first.communicate()
    (scheduler.queue / "down").touch()  # the controller does not answer for a while
    second = waiting(*words)
    assert second.stdout is not None
    assert second.stdout.readline() == "1\n"
    (scheduler.queue / "down").unlink()
    second.kill()
    second.communicate()
    scheduler.work(1)
    done = call(*words, **scheduler.variables)
    assert (done.code, done.out) == (3, "1\n")
    log = scheduler.folder / "logs" / "bash-1.out"
    assert done.err.splitlines() == [
        f"zeromt: job 1; its log is {log}; `scancel 1` ends it",
        f"{log}:",
        "its",
    ]
    (scheduler.folder / "code").write_text("0")
    third = waiting(*words)
    scheduler.work(2)
    assert (third.wait(PATIENCE), third.communicate()[0]) == (0, "2\n")
    assert scheduler.asked() == ["--test-only", "--parsable"] * 2


def test_a_job_that_leaves_no_exit_code(scheduler: Scheduler, waiting: Waiting) -> None:
    """One that is asked for again was cancelled: it is sent anew."""
    words = [*LAUNCH, "--wait", "--job-name", "x", "--", "true"]
    for job in (1, 2):
        child = waiting(*words)
        scheduler.wait_for(job)
        scheduler.leave(job)
        err = child.communicate(timeout=PATIENCE)[1]
        assert child.returncode == 1
        assert f"job {job} left no exit code: it was cancelled, killed, or out of time or memory" in err
        assert "zeromt: job 1: TIMEOUT" in err


def test_a_part_that_fails_is_shown(scheduler: Scheduler, waiting: Waiting) -> None:
    child = waiting(*LAUNCH, "--wait", "--array", "2", "--", "zeromt", "prepare", "none.yaml")
    scheduler.work(1, task=2)
    scheduler.wait_for(2)
    scheduler.leave(1)
    scheduler.leave(2)  # its dependency is never satisfied
    err = child.communicate(timeout=PATIENCE)[1]
    assert child.returncode == 2
    assert f"{scheduler.folder}/logs/prepare-1_2.out:\n" in err
    assert "zeromt: error: CONFIG: no such file: 'none.yaml'" in err
    assert scheduler.asked()[2] == "--parsable --dependency=afterok:1 --kill-on-invalid-dep=yes"


def test_a_launch_that_was_killed_between_two_jobs_goes_on(scheduler: Scheduler, waiting: Waiting) -> None:
    words = [*LAUNCH, "--wait", "--array", "2", "--", "zeromt", "prepare", "none.yaml"]
    child = waiting(*words)
    scheduler.wait_for(2)
    child.kill()
    child.communicate()
    (record,) = (scheduler.folder / "state" / "zeromt").iterdir()
    record.write_text(record.read_text().removesuffix("2\n"))
    scheduler.leave(2)
    child = waiting(*words)
    scheduler.wait_for(3)
    child.kill()
    assert child.communicate()[0] in ("", "1\n3\n")
    assert scheduler.asked()[3:] == ["--parsable --dependency=afterok:1 --kill-on-invalid-dep=yes"]


def test_jobs_are_known_by_folder_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever leads to the folder; what a record holds that cannot be read is nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run, link = tmp_path / "run", tmp_path / "link"
    link.symlink_to(run)
    assert jobs_of(run) == []
    for command, jobs in (((), "8;cluster\n9\n"), (("true",), "10\n")):
        with held(run, command) as file:
            begin(file, {"wait": False})
            file.write(jobs)
    assert [jobs_of(link), jobs_of(run, ["true"]), jobs_of(run, ["x"])] == [["8", "9"], ["10"], []]
    for record in (tmp_path / "state" / "zeromt").iterdir():
        record.write_text("{\n7\n")
    assert jobs_of(run) == []
