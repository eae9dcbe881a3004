"""status.json: what a start that is refused, or has nothing to do, leaves of the run's state."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainer.runs.status import read_ended, read_status, withdraw_status, write_status

FINISHED = {"state": "finished", "step": 10, "launch_id": "old", "pid": 1, "job_id": None}


def write(folder: Path, tree: dict[str, Any]) -> None:
    (folder / "status.json").write_text(json.dumps(tree))


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return found


@pytest.fixture(params=["A", None], ids=["launched", "plain"])
def launch_id(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    if request.param is None:
        monkeypatch.delenv("ZEROMT_LAUNCH_ID", raising=False)
    else:
        monkeypatch.setenv("ZEROMT_LAUNCH_ID", request.param)
    found: str | None = request.param
    return found


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_refusal_keeps_state_and_step(state: str, tmp_path: Path, launch_id: str | None) -> None:
    write(tmp_path, {**FINISHED, "state": state})
    write_status(tmp_path, "running")
    assert (read(tmp_path)["state"], read(tmp_path)["step"]) == ("running", 10)
    write_status(tmp_path, "refused", error="seed: 2")
    write_status(tmp_path, "refused", error="seed: 2")  # another rank says it too
    found = read(tmp_path)
    refusal = found.pop("refusal", None)
    assert found == {**FINISHED, "state": state}
    assert refusal["error"] == "seed: 2"
    status = read_status(tmp_path / "status.json")
    assert status is not None
    assert status.refusal is not None
    if launch_id is not None:  # for its launcher it is refused
        mine = read_status(tmp_path / "status.json", launch_id)
        assert mine is not None
        assert (mine.state, mine.error, mine.exit_code) == ("refused", "seed: 2", 2)
    write_status(tmp_path, "running")
    assert "refusal" not in read(tmp_path), "the next start is another"


def test_victims_of_a_refusal_do_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROMT_LAUNCH_ID", "A")
    write(tmp_path, FINISHED)
    write_status(tmp_path, "running")
    write_status(tmp_path, "failed", error="rank 0: a victim")
    write_status(tmp_path, "refused", error="rank 1 refuses")
    write_status(tmp_path, "failed", error="rank 2: a victim")
    assert read(tmp_path)["state"] == "finished"
    mine = read_status(tmp_path / "status.json", "A")
    assert mine is not None
    assert mine.state == "refused"


def test_first_start_that_is_refused(tmp_path: Path, launch_id: str | None) -> None:
    write_status(tmp_path, "running")
    write_status(tmp_path, "refused", error="seed: 2")
    assert (read(tmp_path)["state"], read(tmp_path)["error"], read(tmp_path)["step"]) == ("refused", "seed: 2", None)
    write_status(tmp_path / "nowhere", "refused", error="seed: 2")
    assert not (tmp_path / "nowhere").exists()


def test_refusal_after_steps_were_made(tmp_path: Path, launch_id: str | None) -> None:
    """A rewind that finds no checkpoint: the run has gone on, and is not what it was."""
    write(tmp_path, FINISHED)
    write_status(tmp_path, "running")
    write_status(tmp_path, "running", step=17)
    write_status(tmp_path, "refused", error="none is whole")
    assert (read(tmp_path)["state"], read(tmp_path)["step"]) == ("refused", 17)


def test_start_that_was_killed_before_a_step_changed_nothing(tmp_path: Path, launch_id: str | None) -> None:
    write(tmp_path, FINISHED)
    write_status(tmp_path, "running")
    write(tmp_path, {**read(tmp_path), "pid": os.getpid() + 1, "launch_id": "killed"})
    ended = read_ended(tmp_path / "status.json")
    assert ended is not None
    assert (ended.state, ended.step) == ("finished", 10)
    write_status(tmp_path, "running")
    write_status(tmp_path, "refused", error="seed: 2")
    assert (read(tmp_path)["state"], read(tmp_path)["step"]) == ("finished", 10)


def test_start_with_nothing_to_do_leaves_no_trace(tmp_path: Path, launch_id: str | None) -> None:
    write(tmp_path, FINISHED)
    write_status(tmp_path, "running")
    withdraw_status(tmp_path, step=10, reason="training.max_updates=10 is reached")
    assert read(tmp_path) == FINISHED


@pytest.mark.parametrize("state", ["stopped", "failed", "running"])
def test_run_that_is_at_its_end_says_so_at_last(state: str, tmp_path: Path, launch_id: str | None) -> None:
    write(tmp_path, {**FINISHED, "state": state})
    write_status(tmp_path, "running")
    withdraw_status(tmp_path, step=10, reason="training.max_updates=10 is reached")
    found = read(tmp_path)
    assert (found["state"], found["step"], found["stop_reason"]) == (
        "finished",
        10,
        "training.max_updates=10 is reached",
    )


def test_stop_before_a_checkpoint_claims_no_step(tmp_path: Path, launch_id: str | None) -> None:
    """That a stopped run was at a step means that it is saved."""
    write(tmp_path, {**FINISHED, "state": "failed", "step": 3})
    write_status(tmp_path, "running")
    write_status(tmp_path, "stopped")
    assert read(tmp_path)["step"] is None
