"""`zeromt stop`, `log` and `status` of jobs that SLURM has, with its commands pretended."""

import os
from pathlib import Path

import pytest

from launcher.slurm.record import write_submitted
from tests.launcher.conftest import Zeromt

STUB = """#!/bin/bash
printf '%s %s\\n' "$(basename "$0")" "$*" >>"$LOG"
case "$(basename "$0") $*" in
squeue*"--jobs 8 "*) ;;
squeue*"--jobs 9 "*) echo "${STATE:-PENDING}|Dependency|UNLIMITED" ;;
squeue*) echo 'PENDING|Dependency|UNLIMITED' ;;
scontrol*)
    printf 'JobId=%s JobName=run\n   UserId=me(%s) GroupId=me(0) MCS_label=N/A\n' "${*##* }" "${OWNER-$UID}"
    printf '   WorkDir=/\n   StdOut=%s/slurm-9.out\n' "${OUTPUT-$RUN/logs}" ;;
scancel*) if [[ $REFUSE ]]; then echo "scancel: error: $REFUSE" >&2; exit 1; fi ;;
esac
"""


@pytest.fixture
def queue(tmp_path: Path) -> dict[str, str]:
    """The environment with an squeue in which job 8 is gone and others wait."""
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "scancel", "scontrol"):
        (tmp_path / "bin" / name).write_text(STUB)
        (tmp_path / "bin" / name).chmod(0o755)
    logs = tmp_path / "run" / "logs"
    logs.mkdir(parents=True)
    write_submitted(tmp_path / "run", ["8", "9", "10"])
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "LOG": str(tmp_path / "log"),
        "RUN": str(tmp_path / "run"),
    }


def test_jobs_that_wait_are_cancelled_the_last_first(zeromt: Zeromt, queue: dict[str, str], tmp_path: Path) -> None:
    done = zeromt("stop", "run", **queue)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call for call in calls if call.startswith("scancel")] == ["scancel 10", "scancel 9"]
    assert [line.split(":")[2] for line in done.stderr.splitlines()] == [
        " job 10 was waiting, and is taken out of the queue",
        " job 9 was waiting, and is taken out of the queue",
    ]


@pytest.mark.parametrize("is_array", [True, False])
def test_of_an_array_jobs_that_run_are_cancelled_too(
    is_array: bool, zeromt: Zeromt, queue: dict[str, str], tmp_path: Path
) -> None:
    """They see no file STOP, as those of a training do."""
    write_submitted(tmp_path / "run", ["8", "9", "10"], is_array=is_array)
    done = zeromt("stop", "run", STATE="RUNNING", **queue)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    cancelled = ["scancel 10", "scancel 9"] if is_array else ["scancel 10"]
    assert [call for call in calls if call.startswith("scancel")] == cancelled
    said = "is cancelled" if is_array else "was waiting, and is taken out of the queue"
    assert done.stderr.splitlines()[0] == f"zeromt: run: job 10 {said}"


@pytest.mark.parametrize("record", [{"OUTPUT": "/home/me/runs/mine/logs"}, {"OWNER": "4242"}, {"OUTPUT": ""}])
def test_a_job_that_slurm_does_not_tie_to_the_run_is_left_alone(
    record: dict[str, str], zeromt: Zeromt, queue: dict[str, str], tmp_path: Path
) -> None:
    """The run may be a stranger's, and the job another one of the caller's."""
    done = zeromt("stop", "run", **queue, **record)
    assert (done.returncode, done.stderr) == (
        2,
        "zeromt: error: RUN: run names job 10, and slurm has no job of yours with that name and these logs; "
        "end it by scancel if it is yours\n",
    )
    assert "scancel" not in (tmp_path / "log").read_text()


def test_a_refusal_of_scancel_is_one_line(zeromt: Zeromt, queue: dict[str, str]) -> None:
    done = zeromt("stop", "run", REFUSE="Access/permission denied", **queue)
    said = "zeromt: error: scancel: scancel: error: Access/permission denied; only your own jobs can be stopped\n"
    assert (done.returncode, done.stderr) == (2, said)


def test_nothing_waits_where_slurm_is_not(zeromt: Zeromt, queue: dict[str, str]) -> None:
    done = zeromt("stop", "run", PATH="/nowhere")
    assert done.returncode == 2
    assert done.stderr.startswith("zeromt: error: RUN: 'run' is not running; its state is empty")


def test_log_shows_the_jobs_output(zeromt: Zeromt, queue: dict[str, str], tmp_path: Path) -> None:
    none = zeromt("log", "run", **queue)
    assert (none.returncode, none.stderr) == (
        2,
        "zeromt: error: RUN: it has no log yet; a run has one when it has started\n",
    )
    (tmp_path / "run" / "logs" / "slurm-8.out").write_text("update 1\n")
    (tmp_path / "run" / "logs" / "slurm-80.out").write_text("of another job\n")
    assert zeromt("log", "run", **queue).stdout == "update 1\n"


def test_log_of_ranks_is_that_of_their_last_start(zeromt: Zeromt, tmp_path: Path) -> None:
    logs = tmp_path / "run" / "logs"
    for number, start in enumerate(("20260101-1_a", "20260101-2_b", "node-1/7-1_c", "node-1/7-2_d")):
        rank = logs / start / "attempt_0" / "1"
        rank.mkdir(parents=True)
        (rank / "stdout.log").write_text("")
        (rank / "stderr.log").write_text(f"{start}\n")
        os.utime(logs / start, (1000 + number, 1000 + number))
    shown = zeromt("log", "run")
    assert [line for line in shown.stdout.splitlines() if line and not line.startswith("==>")] == [
        "20260101-2_b",
        "node-1/7-2_d",
    ]
