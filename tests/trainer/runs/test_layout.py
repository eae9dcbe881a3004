"""Names in a run's folder: other programs, and runs that were made before, have them too."""

import shutil
from pathlib import Path

import pytest

from tests.small import small_runs
from trainer.runs import layout
from trainer.runs.layout import (
    CONFIG,
    MANIFEST,
    checkpoint_folder,
    complete_steps,
    list_steps,
    model_identity,
    newest_step,
    step_of,
)


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


@pytest.mark.parametrize(
    ("file", "was", "now", "counts"),
    [
        (MANIFEST, '"state.json"', '"other.json"', False),
        (MANIFEST, '"optimizer-', '"other-', False),
        (CONFIG, "output: dataset", "output: elsewhere", False),
        (MANIFEST, '"model-', '"other-', True),
        (MANIFEST, '"tokenizer', '"other', True),
        (CONFIG, "num_heads: 2", "num_heads: 1", True),
    ],
)
def test_state_and_paths_do_not_count(tmp_path: Path, file: str, was: str, now: str, counts: bool) -> None:
    newest = max((small_runs() / "runs/small/checkpoints").glob("step-*"))
    checkpoint = Path(shutil.copytree(newest, tmp_path / "checkpoint"))
    before, text = model_identity(checkpoint), (checkpoint / file).read_text()
    assert was in text
    (checkpoint / file).write_text(text.replace(was, now))
    assert (model_identity(checkpoint) != before) is counts
