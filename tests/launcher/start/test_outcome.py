"""How a start ended, and which rank failed first, on one machine and on several."""

import dataclasses
import json
import os
from pathlib import Path

import pytest

from launcher.start.attempt import note_ends, outcome
from launcher.start.ranks import Job, Node
from tests.conftest import HOST
from tests.launcher.start.test_ranks import make
from trainer.runs.failure import Failure, leave_note, newest_cause, read_failures, stacks_name
from trainer.runs.status import read_status

SECOND = Node(rank=1, num_nodes=2, host="n1", port=1, interface=None)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return make(f"output={tmp_path}", "name=run", num_processes=2)


def note(job: Job, rank: int, time: float, message: str = "ValueError: x\ny", **more: object) -> None:
    failure = Failure(rank=rank, host=HOST, time=time, message=message)
    assert leave_note(job.folder, "L", dataclasses.replace(failure, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "torchrun", "was_stopped", "expected"),
    [
        ("finished", 0, False, 0),
        ("finished", 1, False, 0),  # all is saved; what broke on the way out changes nothing
        ("refused", 0, False, 2),  # by all ranks alike
        ("refused", 1, False, 2),
        ("stopped", 0, True, 75),
        ("stopped", 0, False, 75),  # by a file
        ("failed", 1, False, 1),
        ("running", 1, False, 1),
        ("running", 1, True, 1),  # nobody says that a save was complete
        ("running", 0, False, 0),  # all have agreed on the end, and the disk is too full to say so
        ("running", 0, True, 75),
        (None, 0, False, 0),
        (None, 1, False, 1),
        (None, 1, True, 75),  # nothing had begun
        (None, -9, False, 1),
    ],
)
def test_exit_code(job: Job, state: str | None, torchrun: int, was_stopped: bool, expected: int) -> None:
    job.folder.mkdir(parents=True)
    if state is not None:
        (job.folder / "status.json").write_text(json.dumps({"state": state, "launch_id": "L"}))
    note(job, 0, 1.0, says_all=True)  # so that none is waited for
    assert outcome(job, "L", torchrun, was_stopped=was_stopped) == expected


def test_refusal_by_one_rank_is_shown_unless_it_writes_to_the_terminal(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.folder.mkdir(parents=True)
    (job.folder / "status.json").write_text(json.dumps({"state": "refused", "launch_id": "L"}))
    note(job, 1, 2.0, "a: 1; allowed is 2\nb: 1; allowed is 2")
    assert outcome(job, "L", 1, was_stopped=False) == 2
    assert capsys.readouterr().err.splitlines() == [
        "zeromt: error: a: 1; allowed is 2",
        "zeromt: error: b: 1; allowed is 2",
    ]
    leave_note(job.folder, "L", Failure(rank=0, host="h", time=1.0, message="a: 1; allowed is 2", says_all=True))
    assert outcome(job, "L", 1, was_stopped=False) == 2
    assert capsys.readouterr().err == ""


def test_cause_is_the_first_line_and_its_victims_the_second(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    note(job, 2, 3.0)
    note(job, 1, 2.0, traceback="Traceback:\n  ValueError: x\n", host="far")
    note(job, 0, 2.5)
    assert outcome(job, "L", 1, was_stopped=False) == 1
    assert capsys.readouterr().err.splitlines() == [
        "zeromt: rank 1 on far failed first: ValueError: x",
        "zeromt: stopped because of it: rank 0, 2",
        "zeromt: its traceback:",
        "    Traceback:",
        "      ValueError: x",
    ]
    status = read_status(job.folder / "status.json", "L")
    assert status is not None
    assert (status.state, status.error) == ("failed", "rank 1 on far: ValueError: x")


STACKS = """Timeout (0:08:00)!
Thread 0x1 (most recent call first):
  File "/x/queue.py", line 1 in get

Thread 0x2 (most recent call first):
  File "/{}.py", line 9 in f
"""


def test_of_ranks_that_hang_the_one_that_does_not_wait_is_the_cause(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As is one that was killed: torchrun knows of that. An error of which a rank has left word is told by it."""
    private = tmp_path / "private"
    private.mkdir()
    (tmp_path / "reduction.py").write_text("\n" * 8 + "    work.wait()\n")
    for rank, where in enumerate(("torch/distributed/c10d_logger", "re/__init__", f"{tmp_path}/reduction"[1:])):
        (private / stacks_name(rank, "step", 7, 8)).write_text(STACKS.format(where))
        os.utime(private / stacks_name(rank, "step", 7, 8), (1000 + rank, 1000 + rank))
    (private / stacks_name(3, "data", 8, 8)).touch()
    (private / "nccl-trace-rank-0").write_text("x")
    (private / "ended.json").write_text(json.dumps({"3": ["was ended by SIGKILL", 999], "4": ["exit code 1", 1]}))
    note(job, 4, 2000.0)
    note_ends(job.folder, "L", private)
    notes = read_failures(job.folder, "L")
    assert {rank: failure.time for rank, failure in notes.items()} == {0: 1000, 1: 521, 2: 1002, 3: 999, 4: 2000}
    assert notes[3].message == "was ended by SIGKILL"
    assert notes[1].message == "stuck in step of update 7: its limit is 8 minutes"
    assert notes[0].message == f"{notes[1].message}; it waits for others"
    assert capsys.readouterr().err.startswith(f"zeromt: rank 0 is {notes[0].message}; its stacks: ")
    copied = {path.name for path in (job.folder / "failures" / "L").glob("*[!n]")}
    assert copied == {"0_step_7_8.stacks", "1_step_7_8.stacks", "2_step_7_8.stacks", "nccl-trace-rank-0"}


def test_nccls_recorder_alone_has_written(job: Job, tmp_path: Path) -> None:
    """As where NCCL aborts: no rank has left a note before."""
    (job.folder / "failures").mkdir(parents=True)
    (tmp_path / "nccl-trace-rank-0").write_text("x")
    (tmp_path / "ended.json").write_text(json.dumps({"0": ["was ended by SIGABRT", 999]}))
    note_ends(job.folder, "L", tmp_path)
    assert read_failures(job.folder, "L")[0].message == "was ended by SIGABRT"
    assert (job.folder / "failures" / "L" / "nccl-trace-rank-0").read_text() == "x"


def test_end_of_the_log_of_a_rank_without_a_traceback(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    on_second = dataclasses.replace(job, node=SECOND)
    log = on_second.logs / "L_x" / "attempt_0" / "1" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {n}\n" for n in range(99)))
    note(job, 3, 2.0, "killed")
    assert outcome(on_second, "L", 1, was_stopped=False) == 1
    shown = capsys.readouterr().err.splitlines()
    assert shown[1:3] == [f"zeromt: the end of {log}:", "    line 19"]
    assert shown[-1] == "    line 98"
    assert read_status(job.folder / "status.json") is None, "the first node writes it"


def test_ranks_that_saved_because_torchrun_was_killed(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.folder.mkdir(parents=True)
    written = {"state": "stopped", "launch_id": "L", "stop_reason": "torchrun is gone"}
    (job.folder / "status.json").write_text(json.dumps(written))
    assert outcome(job, "L", -9, was_stopped=True) == 75
    assert outcome(job, "L", -9, was_stopped=False) == 1
    assert "torchrun was killed by signal 9" in capsys.readouterr().err


def test_broken_notes_are_passed_over(job: Job) -> None:
    folder = job.folder
    assert newest_cause(folder) is None
    for launch, rank, at in (("9", 0, 50.0), ("10", 1, 70.0), ("10", 0, 71.0)):
        leave_note(folder, launch, Failure(rank=rank, host=HOST, time=at, message="x"))
    for name, text in (("7", "{"), ("8", "[]"), ("9", '{"rank": "x"}'), ("5", '{"rank": 1, "time": NaN}')):
        (folder / "failures" / "10" / f"rank-{name}.json").write_text(text)
    assert sorted(read_failures(folder, "10")) == [0, 1]
    newest = newest_cause(folder)
    assert newest is not None
    assert (newest.rank, newest.time) == (1, 70.0)
    (folder / "file").touch()
    assert not leave_note(folder / "file", "L", Failure(rank=0, host=HOST, time=1.0, message="x"))
