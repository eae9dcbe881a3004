"""Whether a job goes back in the queue, and whether a later one of a chain begins."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.slurm.decide import Requeues, decide_begin, decide_end, main, read_requeues
from tests.launcher.conftest import environment
from tests.waiting import PATIENCE
from trainer.runs.layout import LAUNCH_LOCK
from trainer.runs.run_lock import RunLock
from trainer.runs.status import Status


def status(state: str, **more: str) -> Status:
    return Status(**{"state": state, "error": None, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, "go"),
        (status("finished"), "end"),
        (status("refused", error="x"), "end"),
        (status("stopped", stop_reason="stop file"), "end"),
        (status("stopped", stop_reason="SIGUSR1"), "go"),
        (status("failed"), "go"),
        (status("running"), "go"),
    ],
)
def test_begin(found: Status | None, expected: str) -> None:
    assert decide_begin(found)[0] == expected


@pytest.mark.parametrize(
    ("found", "code", "signal", "expected"),
    [
        (status("finished"), 0, "none", "end"),
        (status("finished"), 143, "USR1", "end"),  # killed on its way out
        (status("refused"), 2, "none", "end"),
        (status("stopped", stop_reason="SIGUSR1"), 75, "USR1", "requeue"),
        (status("stopped", stop_reason="SIGTERM"), 75, "none", "requeue"),  # a preemption that told the ranks alone
        (status("stopped", stop_reason="SIGTERM"), 75, "TERM", "end"),
        (status("stopped", stop_reason="stop file"), 75, "none", "end"),
        (status("stopped", stop_reason="stop file"), 75, "USR1", "end"),
        (None, 75, "USR1", "requeue"),  # the ranks had not begun
        (None, 138, "USR1", "requeue"),
        (None, 75, "none", "end"),  # nobody wrote why, and SLURM has not asked
        (status("running"), 2, "USR1", "end"),
        (status("failed", error="rank 0: ValueError: x"), 1, "none", "end"),
        (status("running"), 137, "none", "end"),
        (None, 1, "none", "end"),
    ],
)
def test_end(found: Status | None, code: int, signal: str, expected: str) -> None:
    assert decide_end(found, code, signal, Requeues(number=1), 5)[0] == expected


def test_requeues_without_progress_are_capped() -> None:
    stopped = status("stopped", stop_reason="SIGUSR1")
    assert decide_end(stopped, 75, "USR1", Requeues(number=2, step=7), 2)[0] == "requeue"
    decision, reason = decide_end(stopped, 75, "USR1", Requeues(number=3, step=7), 2)
    assert decision == "end"
    assert reason.endswith("no new checkpoint since step 7, 2 times")
    assert decide_end(stopped, 75, "USR1", Requeues(number=1), 0)[0] == "end"  # a site without requeue


def test_requeues_are_counted_by_job_and_step(tmp_path: Path) -> None:
    file = tmp_path / "requeues.json"
    assert read_requeues(tmp_path, "5") == Requeues(job="5", step=0, number=1)
    file.write_text(json.dumps({"job": "5", "step": 0, "number": 1}))
    assert read_requeues(tmp_path, "5") == Requeues(job="5", step=0, number=2)
    assert read_requeues(tmp_path, "6") == Requeues(job="6", step=0, number=1)
    checkpoint = tmp_path / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    for name in ("manifest.json", "manifest.sha256"):
        (checkpoint / name).touch()
    assert read_requeues(tmp_path, "5") == Requeues(job="5", step=10, number=1)
    for broken in ("", "[]", "{"):
        file.write_text(broken)
        assert read_requeues(tmp_path, "5").number == 1


Decide = Callable[..., str]


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Decide:
    """What the command prints, called here."""

    def call(*arguments: str) -> str:
        monkeypatch.setenv("SLURM_JOB_ID", "5")
        capsys.readouterr()
        assert main(arguments) == 0
        said = capsys.readouterr()
        assert said.err.startswith("zeromt: ")
        return said.out

    return call


def decide_beside(*arguments: str) -> str:
    """As `decide`, in a process of its own: a lock is held against another."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "launcher.slurm.decide", *arguments],
        env=environment(SLURM_JOB_ID="5"),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr.startswith("zeromt: ")
    return done.stdout


def test_command(decide: Decide, tmp_path: Path) -> None:
    written = {"state": "stopped", "error": None, "stop_reason": "SIGUSR1", "job_id": "5"}
    (tmp_path / "status.json").write_text(json.dumps(written))
    options = ("end", str(tmp_path), "--code", "75", "--signal", "none", "--max-requeues", "2")
    assert [decide(*options) for _ in range(3)] == ["requeue\n", "requeue\n", "end\n"]
    (tmp_path / "requeues.json").unlink()
    (tmp_path / "status.json").write_text(json.dumps({**written, "job_id": "4"}))  # of another job
    assert decide(*options) == "end\n"
    assert decide("begin", str(tmp_path)) == "go\n"
    (tmp_path / "status.json").write_text(json.dumps({**written, "state": "finished"}))
    assert decide_beside("begin", str(tmp_path)) == "go\n"  # a new submission may have more to do
    assert decide("begin", str(tmp_path), "--link", "2") == "end\n"
    assert decide("begin", str(tmp_path / "none")) == "go\n"
    lock = RunLock(tmp_path, LAUNCH_LOCK)
    lock.acquire()
    assert decide_beside("begin", str(tmp_path)) == "refuse\n"
    lock.release()
    (tmp_path / LAUNCH_LOCK).unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_refused_starts_of_a_run_that_keeps_its_state(decide: Decide, tmp_path: Path) -> None:
    """A batch job's refusal ends its chain, whatever code srun gives for it; a person's does not."""
    written = {"state": "stopped", "error": None, "stop_reason": "SIGUSR1", "job_id": "5"}
    for job, at_the_begin, at_the_end in (("5", "end\n", "end\n"), (None, "go\n", "requeue\n")):
        refusal = {"error": "seed: 2", "job_id": job, "launch_id": "A"}
        (tmp_path / "status.json").write_text(json.dumps({**written, "refusal": refusal}))
        assert decide("begin", str(tmp_path), "--link", "2") == at_the_begin
        options = ("--code", "75", "--signal", "USR1", "--max-requeues", "2")
        assert decide("end", str(tmp_path), *options) == at_the_end
