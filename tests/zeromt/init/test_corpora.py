"""Corpora of three forms, from `zeromt init` to 50 updates: what it writes is prepared and trained on as it is."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import environment, read_metrics, zeromt
from tests.zeromt.init import corpora

CORPORA: dict[str, Callable[[Path], list[str]]] = {
    "tsv": lambda folder: corpora.tsv(folder, corpora.bundled(5000)),
    "tmx": lambda folder: corpora.tmx(folder, corpora.bundled(3000)),
    "300 pairs": lambda folder: corpora.two_files(folder, corpora.bundled(300)),
}
SHORT = ("training.max_updates=50", "schedule.warmup_updates=10")
"""A warm-up must be shorter than the run."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_untouched_to_50_updates(name: str, tmp_path: Path) -> None:
    files = CORPORA[name](tmp_path)
    for words in (("init", *files, "-o", "my.yaml"), ("prepare", "my.yaml"), ("launch", "local", "my.yaml", *SHORT)):
        done = subprocess.run(
            zeromt(*words), cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=1200, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        print(done.stdout)
    losses = [line["loss"] for line in read_metrics(tmp_path / "runs/my")]
    [last] = read_metrics(tmp_path / "runs/my", "evaluation")
    assert last["step"] == 50
    assert losses[-1] < losses[0]
