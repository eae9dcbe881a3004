"""`zeromt inspect` of runs that are odd and legitimate, and of those that are not."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import write_score
from tests.conftest import Refused
from tests.small import small_runs
from zeromt.cli.main import main


def _inspect(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main(["inspect", str(path)])
    return code, capsys.readouterr().out.splitlines()


def test_weights_only_is_said_of_a_run_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["average", str(small_runs() / "runs" / "small"), "--last", "2", "-o", str(tmp_path / "mean")]) == 0
    capsys.readouterr()
    code, lines = _inspect(tmp_path / "mean", capsys)
    assert (code, lines[-1]) == (0, "checkpoint      step-00000010: whole, weights only (zeromt average)")
    _, lines = _inspect(small_runs() / "runs" / "small", capsys)
    assert "weights only" not in "\n".join(lines)


def test_the_worst_pairs_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Refused) -> None:
    dataset = Path(shutil.copytree(small_runs() / "dataset", tmp_path / "data"))
    pairs = Dataset.load(dataset).num_pairs
    scores = np.arange(pairs, dtype=np.float32) / np.float32(8)
    write_score(dataset, "qe", {"command": ["qe"]}, pairs, [scores])
    _, lines = _inspect(dataset, capsys)
    assert "scores    qe" in lines
    assert main(["inspect", str(dataset), "--worst", "qe", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown[::3]] == [["0", "pair", "0"], ["0.125", "pair", "1"]]
    for number in ("x", "0", "-1"):
        said = refused("inspect", str(dataset), "--best", "qe", number)
        assert f"--best: '{number}'" in said
