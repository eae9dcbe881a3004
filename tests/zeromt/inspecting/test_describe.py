"""`zeromt inspect` of a dataset with a score."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import write_score
from tests.small import small_runs
from zeromt.cli.main import main


def test_scores_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = Path(shutil.copytree(small_runs() / "dataset", tmp_path / "data"))
    pairs = Dataset.load(dataset).num_pairs
    scores = np.arange(pairs, dtype=np.float32) / np.float32(8)
    write_score(dataset, "qe", {"command": ["qe"]}, pairs, [scores])
    assert main(["inspect", str(dataset)]) == 0
    assert "scores    qe\n" in capsys.readouterr().out
