"""Layers that torch.compile made, under ZeRO on two ranks."""

import shutil
from pathlib import Path

import pytest

from configs import load_run
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import plain_run
from tests.trainer.test_oracle import of


@pytest.mark.slow  # compiling takes minutes
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_losses_of_plain_pytorch(corpus_en_fr: Corpus, weighted: Path, forked: Forked, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    settings = [*of("tied", tmp_path, corpus_en_fr, weighted), "engine.zero_stage=2"]
    compiled = [[*settings, "engine.compile=true"]]
    forked.ranks(2, train_all, compiled, cwd=tmp_path, seconds=900, variables={"TORCHINDUCTOR_CACHE_DIR": str(kernels)})
    losses = [line["loss"] for line in read_metrics(tmp_path / "tied")]
    assert losses == pytest.approx(plain_run(load_run("debug", settings)).losses, rel=1e-5)
    assert list(kernels.rglob("*.cpp"))
