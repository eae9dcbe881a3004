"""Which job of a run is asked for, and by whom; records that anybody may have written."""

import shutil
import time
from pathlib import Path

import pytest

from launcher.slurm.record import begin, held, job_of_run, jobs_of, write_submitted
from trainer.runs.status import Status, read_status, write_status


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the records."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "zeromt"


def test_jobs_are_known_by_folder_and_command(tmp_path: Path, state: Path) -> None:
    """Whatever leads to the folder; and what a record holds that cannot be read is nothing."""
    run, link = tmp_path / "run", tmp_path / "link"
    link.symlink_to(run)
    assert jobs_of(run) == []
    for command, jobs in (((), ["8;cluster", "9"]), (("true",), ["10"])):
        with held(run, command) as file:
            begin(file, {"name": "x"})
            file.writelines(f"{job}\n" for job in jobs)
    assert (jobs_of(run), jobs_of(link), jobs_of(run, ["true"]), jobs_of(run, ["false"])) == (
        ["8", "9"],
        ["8", "9"],
        ["10"],
        [],
    )
    for record in state.iterdir():
        record.write_text("{\n7\n")
    assert jobs_of(run) == []


def written(job: str | None, *, age: float) -> Status:
    """The status that a job, or none, wrote so many seconds ago."""
    return Status(state="stopped", error=None, updated=time.time() - age, job_id=job)


def submitted(run: Path, *jobs: str) -> None:
    (run / "logs").mkdir(exist_ok=True)
    write_submitted(run, jobs)


def test_the_newest_job_is_asked_for(tmp_path: Path) -> None:
    assert job_of_run(tmp_path, None) is None
    assert job_of_run(tmp_path, written(None, age=5)) is None
    by_hand = job_of_run(tmp_path, written("7", age=5))
    assert by_hand is not None
    assert (by_hand.id, by_hand.together) == ("7", ["7"])
    submitted(tmp_path, "8", "9")
    for status, job, together in (
        (None, "8", ["8", "9"]),
        (written("7", age=5), "8", ["8", "9"]),  # what wrote it is older than what was submitted
        (written("9", age=-5), "9", ["8", "9"]),
        (written("10", age=-5), "10", ["10"]),
    ):
        found = job_of_run(tmp_path, status)
        assert found is not None
        assert (found.id, found.together) == (job, together)
    assert job_of_run(tmp_path, written(None, age=-5)) is None  # started by hand since


def test_a_copy_of_a_run_has_no_jobs(tmp_path: Path) -> None:
    """Else `zeromt stop` on the copy would cancel those of the original."""
    (tmp_path / "run").mkdir()
    submitted(tmp_path / "run", "8")
    assert job_of_run(tmp_path / "run", None) is not None
    (tmp_path / "link").symlink_to(tmp_path / "run")
    assert job_of_run(tmp_path / "link", None) is not None
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert job_of_run(tmp_path / "copy", None) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "3", "\udcff", '{"jobs": ["8"]}'),
        '{"run": "HERE", "jobs": [8], "time": 1}',
        '{"run": "HERE", "jobs": ["8"], "time": "x"}',
        '{"run": "HERE", "jobs": null, "time": 1}',
    ],
)
def test_a_broken_record_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "jobs.json").write_bytes(text.replace("HERE", str(tmp_path)).encode(errors="surrogateescape"))
    assert job_of_run(tmp_path, None) is None


def test_status_says_which_job_wrote_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, job in (("7", "7"), ("", None)):
        monkeypatch.setenv("SLURM_JOB_ID", number)
        write_status(tmp_path, "running")
        found = read_status(tmp_path / "status.json")
        assert found is not None
        assert found.job_id == job
