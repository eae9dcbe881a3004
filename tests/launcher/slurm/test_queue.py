"""`zeromt stop`, `log` and `status` of jobs that SLURM has, with its commands pretended."""

import os
from pathlib import Path

import pytest

from launcher.slurm.record import write_submitted
from tests.conftest import Call, Refused

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


def test_jobs_that_wait_are_cancelled_the_last_first(call: Call, queue: dict[str, str], tmp_path: Path) -> None:
    done = call("stop", "run", **queue)
    assert done.code == 0, done.err
    calls = (tmp_path / "log").read_text().splitlines()
    assert [call for call in calls if call.startswith("scancel")] == ["scancel 10", "scancel 9"]
    assert [line.split(":")[2] for line in done.err.splitlines()] == [
        " job 10 was waiting, and is taken out of the queue",
        " job 9 was waiting, and is taken out of the queue",
    ]


@pytest.mark.parametrize("is_array", [True, False])
def test_of_an_array_jobs_that_run_are_cancelled_too(
    is_array: bool, call: Call, queue: dict[str, str], tmp_path: Path
) -> None:
    """They see no file STOP, as those of a training do."""
    write_submitted(tmp_path / "run", ["8", "9", "10"], is_array=is_array)
    done = call("stop", "run", STATE="RUNNING", **queue)
    assert done.code == 0, done.err
    calls = (tmp_path / "log").read_text().splitlines()
    cancelled = ["scancel 10", "scancel 9"] if is_array else ["scancel 10"]
    assert [call for call in calls if call.startswith("scancel")] == cancelled
    said = "is cancelled" if is_array else "was waiting, and is taken out of the queue"
    assert done.err.splitlines()[0] == f"zeromt: run: job 10 {said}"


NOT_YOURS = "RUN: run names job 10, and slurm has no job of yours with that name and these logs; end it by"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OUTPUT": "/home/me/runs/mine/logs"}, NOT_YOURS),
        ({"OWNER": "4242"}, NOT_YOURS),
        ({"OUTPUT": ""}, NOT_YOURS),
        (
            {"REFUSE": "Access/permission denied"},
            "scancel: scancel: error: Access/permission denied",
        ),
        ({"PATH": "/nowhere"}, "RUN: 'run' is not running"),
    ],
)
def test_what_cannot_be_stopped_is_left_alone(
    variables: dict[str, str], said: str, refused: Refused, queue: dict[str, str], tmp_path: Path
) -> None:
    """The run may be a stranger's, and the job another one of the caller's."""
    assert refused("stop", "run", **{**queue, **variables}).startswith(said)
    log = tmp_path / "log"
    assert ("scancel" in (log.read_text() if log.exists() else "")) == ("REFUSE" in variables)


def test_log_shows_the_jobs_output(call: Call, refused: Refused, queue: dict[str, str], tmp_path: Path) -> None:
    assert refused("log", "run", **queue) == "RUN: it has no log yet; a run has one when it has started"
    (tmp_path / "run" / "logs" / "slurm-8.out").write_text("update 1\n")
    (tmp_path / "run" / "logs" / "slurm-80.out").write_text("of another job\n")
    assert call("log", "run", **queue).out == "update 1\n"


def test_log_of_ranks_is_that_of_their_last_start(call: Call, tmp_path: Path) -> None:
    logs = tmp_path / "run" / "logs"
    for number, start in enumerate(("20260101-1_a", "20260101-2_b", "node-1/7-1_c", "node-1/7-2_d")):
        rank = logs / start / "attempt_0" / "1"
        rank.mkdir(parents=True)
        (rank / "stdout.log").write_text("")
        (rank / "stderr.log").write_text(f"{start}\n")
        os.utime(logs / start, (1000 + number, 1000 + number))
    shown = call("log", "run")
    assert [line for line in shown.out.splitlines() if line and not line.startswith("==>")] == [
        "20260101-2_b",
        "node-1/7-2_d",
    ]
