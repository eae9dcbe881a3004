"""What a job does next: starts the ranks, goes back in the queue, or ends, and with which exit code."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.slurm.decide import main
from tests.launcher.conftest import environment
from tests.waiting import PATIENCE
from trainer.runs.layout import LAUNCH_LOCK
from trainer.runs.run_lock import RunLock

Decide = Callable[..., str]
LIMITS = ("--max-restarts", "2", "--max-requeues", "2")


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Decide:
    """What the command prints, called here for the run in the test's folder; its start has the id A."""
    monkeypatch.setenv("SLURM_JOB_ID", "5")

    def call(*arguments: str, start: str = "A", **status: object) -> str:
        if status:
            written = {"error": None, "launch_id": "A", "job_id": "5", **status}
            (tmp_path / "status.json").write_text(json.dumps(written))
        assert main([str(tmp_path), start, *LIMITS, *arguments]) == 0
        said = capsys.readouterr()
        assert said.err.startswith("zeromt: ")
        return said.out.strip()

    return call


def save(run: Path, step: int) -> None:
    """A checkpoint, by appearance."""
    (folder := run / "checkpoints" / f"step-{step:08}").mkdir(parents=True)
    for name in ("manifest.json", "manifest.sha256"):
        (folder / name).touch()


@pytest.mark.parametrize(
    ("status", "code", "signal", "expected"),
    [
        ({"state": "finished"}, 0, "none", "end 0"),
        ({"state": "finished"}, 137, "USR1", "end 0"),  # killed on its way out
        ({"state": "refused"}, 137, "none", "end 2"),  # srun has killed the others
        ({"state": "stopped", "stop_reason": "stop file"}, 0, "USR1", "end 75"),
        ({"state": "stopped", "stop_reason": "SIGUSR1"}, 0, "USR1", "requeue 75"),
        ({"state": "stopped", "stop_reason": "SIGTERM"}, 0, "none", "requeue 75"),  # a preemption that told the ranks
        ({"state": "stopped", "stop_reason": "SIGTERM"}, 0, "TERM", "exit 75"),
        ({"state": "stopped", "stop_reason": "torchrun is gone"}, 1, "none", "start 1"),
        ({"state": "failed", "error": "rank 0: x"}, 1, "none", "start 1"),
        ({"state": "failed", "error": "rank 0: x"}, 1, "USR1", "requeue 1"),
        ({"state": "failed", "error": "rank 0: x"}, 1, "TERM", "exit 1"),
        ({"state": "running"}, 137, "none", "start 1"),
        ({"state": "finished", "launch_id": "B"}, 1, "none", "requeue 1"),  # of an earlier start: no rank began
        ({"state": "finished", "launch_id": "B"}, 2, "none", "end 2"),
        ({}, 1, "USR1", "requeue 1"),
        ({}, 143, "TERM", "exit 1"),
    ],
)
def test_when_the_ranks_have_ended(
    status: dict[str, str], code: int, signal: str, expected: str, decide: Decide
) -> None:
    assert decide("--code", str(code), "--signal", signal, **status) == expected


def test_a_refused_start_of_a_run_that_keeps_its_state(decide: Decide) -> None:
    refusal = {"error": "seed: 2", "job_id": "5", "launch_id": "A"}
    before = {"state": "stopped", "stop_reason": "SIGUSR1", "launch_id": "B"}
    assert decide("--signal", "USR1", **before, refusal=refusal) == "end 2"
    assert decide("--link", "2", start="none") == "end 2", "so it ends its chain"
    by_hand = {**refusal, "job_id": None, "launch_id": "C"}
    assert decide("--link", "2", start="none", **before, refusal=by_hand) == "start 0"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "start 0"),
        ({"state": "finished"}, "end 0"),
        ({"state": "refused"}, "end 2"),
        ({"state": "stopped", "stop_reason": "stop file"}, "end 75"),
        ({"state": "stopped", "stop_reason": "SIGUSR1"}, "start 0"),
        ({"state": "failed"}, "start 0"),
    ],
)
def test_a_later_job_of_a_chain_begins_if_something_is_left(
    status: dict[str, str], expected: str, decide: Decide
) -> None:
    assert decide("--link", "2", start="none", **status) == expected
    assert decide(start="none") == "start 0", "a new launch may have more to do"


def test_tries_without_a_new_checkpoint_are_limited(decide: Decide, tmp_path: Path) -> None:
    """Those in an allocation anew after a requeue; those of another job do not count; nor what cannot be read."""
    failed = {"state": "failed", "error": "x"}
    assert [decide(**failed) for _ in range(3)] == ["start 1", "start 1", "end 1"]
    save(tmp_path, 10)
    assert [decide(**failed) for _ in range(2)] == ["start 1", "start 1"]
    stopped = {"state": "stopped", "stop_reason": "SIGUSR1"}
    assert decide(**stopped) == "requeue 75"
    assert [decide(**failed) for _ in range(2)] == ["start 1", "start 1"]
    assert [decide(**stopped) for _ in range(2)] == ["requeue 75", "end 75"]
    record = tmp_path / "requeues.json"
    for text in (json.dumps({**json.loads(record.read_text()), "job": "4"}), "", "[]", "{"):
        record.write_text(text)
        assert decide(**stopped) == "requeue 75"
    assert decide("--max-requeues", "0", **stopped) == "end 75"  # a site without


def test_a_failed_run_that_is_asked_to_stop_is_not_started_again(decide: Decide, tmp_path: Path) -> None:
    (tmp_path / "STOP").touch()
    assert decide(state="failed") == "end 1"
    assert not (tmp_path / "STOP").exists()


def test_a_run_that_another_job_writes_is_refused(decide: Decide, tmp_path: Path) -> None:
    lock = RunLock(tmp_path, LAUNCH_LOCK)
    lock.acquire()
    command = [sys.executable, "-P", "-m", "launcher.slurm.decide", str(tmp_path), "none"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True)
    lock.release()
    assert done.stdout == "end 2\n"
    assert "is being written by process" in done.stderr
    assert decide(start="none") == "start 0"
