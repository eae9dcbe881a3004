"""From 0.3.0 on, every key is read, and every dataset and run."""

import json
import shutil
from pathlib import Path

import pytest

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import read_metrics
from tests.forked import Forked
from tests.kept import FOLDERS, keys

pytestmark = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_every_key_and_choice_is_there(folder: Path) -> None:
    assert set((folder / "keys.txt").read_text(encoding="utf-8").splitlines()) <= set(keys())


@pytest.mark.parametrize("ranks", [1, 2])
def test_runs_resume(folder: Path, ranks: int, forked: Forked, tmp_path: Path) -> None:
    """With the losses that the release itself would have had."""
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    place = Path(shutil.copytree(folder, tmp_path / "place"))
    run = place / "runs" / "kept"
    before, last = read_metrics(run), max(map(int, expected["losses"]))
    assert Dataset.load(place / "dataset").fingerprint == expected["fingerprint"]
    done = forked.trainer(ranks, "runs/kept/config.yaml", f"training.max_updates={last}", cwd=place)
    assert done.code == 0, done.err
    lines = read_metrics(run)
    assert lines[: len(before)] == before
    assert {str(line["step"]): line["loss"] for line in lines} == pytest.approx(expected["losses"], rel=1e-5)
    assert read_metrics(run, "evaluation")[-1]["nll"] == pytest.approx(expected["nll"], rel=1e-5)


def test_commands_read_them(folder: Path, forked: Forked, tmp_path: Path) -> None:
    place = Path(shutil.copytree(folder, tmp_path / "place"))
    for words in (
        ("inspect", "dataset"), ("inspect", "runs/kept"), ("status", "runs/kept"), ("evaluate", "runs/kept"),
        ("translate", "runs/kept", "Dogs run."), ("average", "runs/kept", "--last", "1", "-o", "mean"),
        ("report", "runs/kept"),
    ):  # fmt: skip
        done = forked.zeromt(*words, cwd=place)
        assert done.code == 0, done.err
