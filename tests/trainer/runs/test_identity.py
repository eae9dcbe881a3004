"""What identifies a model: its weights, vocabulary and section `model`, wherever and whenever it was trained."""

import shutil
from pathlib import Path

import pytest

from tests.small import small_runs
from trainer.runs.layout import CONFIG, MANIFEST, model_identity


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
