"""Names in a run's folder: other programs, and runs that were made before, have them too."""

from pathlib import Path

import pytest

from configs.process.files import FileError
from trainer.runs import layout
from trainer.runs.layout import checkpoint_folder, complete_steps, hypotheses_file, list_steps, newest_step, step_of


def test_hypotheses_stay_in_their_folder() -> None:
    assert hypotheses_file(Path("r"), 123_456_789, "news") == Path("r/eval/step-123456789.news.hyp")
    with pytest.raises(FileError, match="names no file in 'r/eval'"):
        hypotheses_file(Path("r"), 500, "../news")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-00000500", 500),
        ("step-123456789", 123_456_789),
        ("step-500", None),
        ("step-0000050x", None),
        ("step-٠٠٠٠٠٥٠٠", None),
        ("tmp-step-00000500", None),
    ],
)
def test_step_of_a_folder(name: str, step: int | None) -> None:
    assert step_of(Path("checkpoints") / name) == step


def test_what_counts_as_complete(tmp_path: Path) -> None:
    checkpoints = tmp_path / layout.CHECKPOINTS
    assert (complete_steps(tmp_path), list_steps(checkpoints), newest_step(tmp_path)) == ([], [], 0)
    for step in (9, 100_000_000, 10):
        checkpoint_folder(tmp_path, step).mkdir(parents=True)
        for name in (layout.MANIFEST, layout.MANIFEST_HASH):
            (checkpoint_folder(tmp_path, step) / name).touch()
    (checkpoint_folder(tmp_path, 10) / layout.MANIFEST_HASH).unlink()
    (checkpoints / "step-00000011").touch()
    (checkpoints / "tmp-step-00000012").mkdir()
    assert complete_steps(tmp_path) == [9, 100_000_000]
    assert [step_of(path) for path in list_steps(checkpoints)] == [100_000_000, 10, 9]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / layout.CHECKPOINTS).touch()  # a file: nothing is there
    assert complete_steps(tmp_path / "other") == []
