"""status.json: what ranks of one start, and starts one after the other, leave of what was written before."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.runs.status import LAUNCH_ID, read_status, write_status

FINISHED = {"state": "finished", "step": 10, "launch_id": "old", "pid": 1, "job_id": None}


def write(folder: Path, tree: dict[str, Any]) -> None:
    (folder / "status.json").write_text(json.dumps(tree))


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return content


@pytest.fixture(params=["A", None], ids=["launched", "plain"], autouse=True)
def launch_id(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.delenv(LAUNCH_ID, raising=False)
    if request.param is not None:
        monkeypatch.setenv(LAUNCH_ID, request.param)
    value: str | None = request.param
    return value


def test_refusal_keeps_state_and_step(tmp_path: Path, launch_id: str | None) -> None:
    """Of a run that has them; of a new one it is the state, and where there is no folder it is not written."""
    write_status(tmp_path / "nowhere", "refused", error="seed: 2")
    assert not (tmp_path / "nowhere").exists()
    write_status(tmp_path, "refused", error="seed: 2")
    assert (read(tmp_path)["state"], read(tmp_path)["error"], read(tmp_path)["step"]) == ("refused", "seed: 2", None)
    write(tmp_path, FINISHED)
    for _ in range(2):  # another rank says it too
        write_status(tmp_path, "refused", error="seed: 2")
    if launch_id is not None:
        write_status(tmp_path, "failed", error="a victim")  # otherwise nobody knows of the same start
        mine = read_status(tmp_path / "status.json", launch_id)
        assert mine is not None
        assert (mine.state, mine.error, mine.exit_code) == ("refused", "seed: 2", 2), "for its launcher"
    status = read_status(tmp_path / "status.json")
    assert status is not None
    assert (status.state, status.step, status.refusal) == ("finished", 10, "seed: 2")
    content = read(tmp_path)
    content.pop("refusal")
    assert content == FINISHED


def test_first_failure_of_a_start_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its launcher knows the cause, or there is another start."""
    monkeypatch.setenv(LAUNCH_ID, "A")
    write_status(tmp_path, "failed", error="rank 1: the first")
    write_status(tmp_path, "running")
    write_status(tmp_path, "failed", error="rank 0: a victim")
    assert (read(tmp_path)["state"], read(tmp_path)["error"]) == ("failed", "rank 1: the first")
    write_status(tmp_path, "failed", error="rank 2: the cause", is_cause=True)
    assert read(tmp_path)["error"] == "rank 2: the cause"
    monkeypatch.setenv(LAUNCH_ID, "B")
    write_status(tmp_path, "running")
    assert read(tmp_path)["state"] == "running"


def test_stop_before_a_checkpoint_claims_no_step(tmp_path: Path) -> None:
    """That a stopped run was at a step means that it is saved."""
    write(tmp_path, {**FINISHED, "state": "failed", "step": 3})
    write_status(tmp_path, "running")
    assert read(tmp_path)["step"] == 3
    write_status(tmp_path, "stopped")
    assert read(tmp_path)["step"] is None
