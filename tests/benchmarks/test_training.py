"""The benchmark of training, small: zeromt beside a plain loop."""

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import BUNDLED, REPO, Start


@pytest.mark.slow
def test_it_keeps_the_rates_of_both(start: Start, tmp_path: Path) -> None:
    corpus = ["--source", str(BUNDLED / "train.en.gz"), "--target", str(BUNDLED / "train.fr.gz"), "--vocab", "1000"]
    small = ["--updates", "6", "--warm-up", "2", "--budget", "1024", "--threads", "1", "--rounds", "1"]
    only = ["--only", "zeromt fp32", "plain loop", "--results", str(tmp_path)]
    done = start(sys.executable, "-m", "benchmarks.training.train", *corpus, *small, *only, cwd=REPO).finish()
    assert done.code == 0, done.err
    rows = json.loads((tmp_path / "training.json").read_text())["rows"]
    rates = {row["program"]: row["tokens_per_second"] for row in rows}
    assert rates.keys() == {"plain loop", "zeromt fp32"}
    assert min(rates.values()) > 0
