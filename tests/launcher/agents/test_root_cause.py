"""Which rank failed first, on one machine and on several, and what is said of it."""

import signal
import threading
from pathlib import Path

import pytest

from launcher.agents import root_cause
from launcher.agents.root_cause import Ended, exit_code, note_ends, report, wait_for_others
from tests.conftest import HOST
from trainer.runs.failure import Failure, find_cause, leave_note, newest_cause, read_failures
from trainer.runs.status import Status


def ended(rank: int, code: int, seen: float = 100.0, logs: Path | None = None) -> Ended:
    return Ended(rank=rank, code=code, seen=seen, logs=logs)


def note(rank: int, time: float, host: str = HOST, message: str = "ValueError: x\ny") -> Failure:
    return Failure(rank=rank, host=host, time=time, message=message, traceback="Traceback:\n  ValueError: x")


def logs(folder: Path, *lines: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text("\n".join(lines))
    return folder


def test_refusals_and_stops(tmp_path: Path) -> None:
    one = logs(tmp_path / "1", "noise", "zeromt: error: a: 1; allowed is 2", "noise")
    refused = Status(state="refused", error="b: 1; allowed is 2\nc: 1; allowed is 2")
    by_7 = Status(state="refused", error="b: 1; allowed is 2", pid=7)
    stopped = Status(state="stopped", error=None)
    for ranks, status, code, lines in [
        ([ended(0, -15), ended(1, 2, logs=one)], None, 2, ["zeromt: error: a: 1; allowed is 2"]),
        ([ended(0, 2), ended(1, 2, logs=one)], None, 2, []),  # rank 0 said it on the terminal
        ([ended(0, 1)], refused, 2, ["zeromt: error: b: 1; allowed is 2", "zeromt: error: c: 1; allowed is 2"]),
        ([Ended(rank=0, code=-15, seen=9.0, logs=None, pid=7), ended(1, 2, logs=one)], by_7, 2, []),
        ([ended(0, 75), ended(1, 75)], None, 75, []),
        ([ended(0, -15), ended(1, -15)], stopped, 75, []),  # a signal while they ended
        ([ended(0, 1), ended(1, 75)], None, 75, []),
    ]:
        assert (exit_code(ranks, status), report(ranks, {}, status)) == (code, lines)


def test_cause_is_the_first_line_and_its_victims_the_second(tmp_path: Path) -> None:
    tail = logs(tmp_path / "1", *(f"line {n}" for n in range(60)))
    ranks = [ended(0, 1), ended(1, -9, logs=tail)]
    notes = note_ends(ranks, tmp_path, "L")
    assert report(ranks, {1: notes[1], 0: note(0, 99.9)}, None) == [
        f"zeromt: rank 1 on {HOST} failed first: killed by SIGKILL",
        "zeromt: stopped because of it: rank 0",
        f"zeromt: the end of {tail / 'stderr.log'}:",
        *(f"    line {n}" for n in range(40, 60)),
    ]
    assert report([ended(0, 1), ended(1, 1)], {0: note(0, 3.0), 5: note(5, 2.0, host="far")}, None) == [
        "zeromt: rank 5 on far failed first: ValueError: x",
        "zeromt: stopped because of it: rank 0, 1",
        "zeromt: its traceback:",
        "    Traceback:",
        "      ValueError: x",
    ]
    assert report([ended(1, -15, 102), ended(0, -15, 101)], {}, None) == [
        f"zeromt: rank 0 on {HOST} failed first: killed by SIGTERM",
        "zeromt: stopped because of it: rank 1",
    ]


def test_lost_node_is_the_cause_of_what_its_loss_did_here() -> None:
    lost = "node 1 (far) is lost: no sign of it for 5 s"
    assert report([ended(1, 1), ended(0, 1)], {0: note(0, 3.0)}, None, lost) == [
        f"zeromt: {lost}",
        "zeromt: stopped because of it: rank 0, 1",
    ]


def test_stuck_rank_is_called_so_and_its_stacks_are_shown(tmp_path: Path) -> None:
    why = "stuck: activity 'step' of step 5 began 9 s ago; the limit is supervision.step_minutes=0.1"
    tail = logs(tmp_path / "1", *(f"line {n}" for n in range(60)), f"zeromt: rank 1 is {why}")
    (tmp_path / "stuck.log").write_text(f"zeromt: rank 11 is stuck: no\nzeromt: rank 1 is {why}\n")
    ranks = [ended(1, -9, logs=tail)]
    shown = report(ranks, note_ends(ranks, tmp_path, "L"), None)
    assert shown[0] == f"zeromt: rank 1 on {HOST} failed first: killed by SIGKILL: {why}"
    assert shown[-1] == f"    zeromt: rank 1 is {why}"
    assert "    line 0" in shown


@pytest.mark.parametrize(
    ("codes", "seen", "noted", "expected"),
    [
        ({0: 1, 1: 1}, {0: 100, 1: 100}, {1: 100.1, 0: 100.2}, 1),  # in the same second
        ({0: 1}, {0: 100}, {1: 99.9, 0: 100.0}, 1),  # the cause is still on its way out when torchrun sees the victim
        ({0: 1, 1: -9}, {0: 100, 1: 100}, {0: 99.3}, 1),  # a killed rank leaves no note
        ({0: 1, 1: -9}, {0: 100, 1: 130}, {0: 99.3}, 0),  # ended by torchrun, which had waited for it
        ({0: -15, 1: 1}, {0: 100, 1: 100}, {}, 1),  # ended by torchrun before it had its handlers
        ({0: 1, 2: 3}, {0: 101, 2: 100}, {}, 2),
    ],
)
def test_cause(
    tmp_path: Path, codes: dict[int, int], seen: dict[int, float], noted: dict[int, float], expected: int
) -> None:
    for rank, at in noted.items():
        assert leave_note(tmp_path, "L", note(rank, at))
    cause = find_cause(note_ends([ended(rank, code, seen[rank]) for rank, code in codes.items()], tmp_path, "L"))
    assert cause is not None
    assert cause.rank == expected


def test_rank_of_another_machine_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here rank 0 failed because rank 3 was killed there, which that machine's agent tells a little later."""
    leave_note(tmp_path, "L", note(0, 99.0, message="RuntimeError: Connection closed by peer"))
    monkeypatch.setattr(root_cause, "_OTHERS_SECONDS", 3600.0)  # it goes on as soon as the note is there
    mine = note_ends([ended(0, 1)], tmp_path, "L")
    there = threading.Timer(0.5, leave_note, (tmp_path, "L", note(3, 98.5, host="far", message="killed by SIGKILL")))
    there.start()
    found = wait_for_others(mine, tmp_path, "L")
    there.join()
    assert report([ended(0, 1)], found, None)[0] == "zeromt: rank 3 on far failed first: killed by SIGKILL"


def test_cause_on_this_machine_is_not_waited_out_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_cause, "_OTHERS_SECONDS", 0.3)
    mine = note_ends([ended(2, -signal.SIGSEGV)], tmp_path, "L")
    leave_note(tmp_path, "L", note(0, 200.0, host="far"))
    assert find_cause(wait_for_others(mine, tmp_path, "L")) == mine[2]
    assert read_failures(tmp_path, "L")[2].message == "killed by SIGSEGV"


def test_broken_notes_are_passed_over(tmp_path: Path) -> None:
    assert newest_cause(tmp_path) is None
    for launch, rank, at in (("9", 0, 50.0), ("10", 1, 70.0), ("10", 0, 71.0)):
        leave_note(tmp_path, launch, note(rank, at))
    for name, text in (("7", "{"), ("8", "[]"), ("9", '{"rank": "x"}'), ("5", '{"rank": 1, "time": NaN}')):
        (tmp_path / "failures" / "10" / f"rank-{name}.json").write_text(text)
    assert sorted(read_failures(tmp_path, "10")) == [0, 1]
    newest = newest_cause(tmp_path)
    assert newest is not None
    assert (newest.rank, newest.time) == (1, 70.0)
    (tmp_path / "file").touch()
    assert not leave_note(tmp_path / "file", "L", note(0, 1.0))
