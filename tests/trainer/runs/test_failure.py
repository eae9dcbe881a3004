"""What a rank leaves in its run's folder when an error ends it."""

import time
from pathlib import Path

import pytest

from trainer.runs.failure import note_failure, read_failures
from trainer.runs.status import LAUNCH_ID


def test_note_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a launcher to read it, and the disk takes it; else the rank shows its traceback itself."""
    monkeypatch.delenv(LAUNCH_ID, raising=False)
    assert not note_failure(ValueError("nobody started it"), tmp_path, 3)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(LAUNCH_ID, "L")
    before = time.time()
    assert note_failure(ValueError("the cause"), tmp_path, 3)
    note = read_failures(tmp_path, "L")[3]
    assert before <= note.time <= time.time()
    assert (note.rank, note.first_line, note.traceback) == (3, "ValueError: the cause", "ValueError: the cause\n")
    (tmp_path / "failures" / "L" / "rank-4.json").write_text('{"rank": 4}')
    assert read_failures(tmp_path, "L") == {3: note}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "failures").touch()
    assert not note_failure(ValueError("the cause"), tmp_path / "full", 0)
