"""What a rank leaves in its run's folder, and in torchrun's file, when an error ends it."""

import time
from pathlib import Path

import pytest

from trainer.runs.failure import ERROR_FILE, note_failure, read_failures
from trainer.runs.status import LAUNCH_ID


def test_note_is_in_the_folder_and_in_torchruns_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    monkeypatch.delenv(ERROR_FILE, raising=False)
    monkeypatch.delenv(LAUNCH_ID, raising=False)
    assert not note_failure(ValueError("nobody started it"), tmp_path, 3)
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "error.json"
    monkeypatch.setenv(ERROR_FILE, str(path))
    monkeypatch.setenv(LAUNCH_ID, "L")
    before = time.time()
    assert note_failure(ValueError("the cause"), tmp_path, 3)
    found = read_failures(tmp_path, "L")[3]
    assert before <= found.time <= time.time()
    assert (found.rank, found.first_line, found.traceback) == (3, "ValueError: the cause", "ValueError: the cause\n")
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(path))
    assert failure.timestamp == int(found.time)
    assert failure.error_file_data["message"]["message"] == "ValueError: the cause"


def test_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank shows its traceback itself then."""
    monkeypatch.setenv(LAUNCH_ID, "L")
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "no" / "error.json"))
    (tmp_path / "failures").touch()
    assert not note_failure(ValueError("the cause"), tmp_path, 0)
