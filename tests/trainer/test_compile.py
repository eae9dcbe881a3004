"""Layers that torch.compile made, under ZeRO on two ranks, against the same without it."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.test_model_options import SETTINGS


@pytest.mark.slow  # compiling takes minutes
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_the_same_losses(stage: int, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    common = [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}", f"engine.zero_stage={stage}"]
    names = ("plain", "compiled")
    runs = [[*common, f"name={name}", f"engine.compile={str(name == 'compiled').lower()}"] for name in names]
    forked.ranks(2, train_all, runs, cwd=tmp_path, seconds=900, variables={"TORCHINDUCTOR_CACHE_DIR": str(kernels)})
    plain, compiled = ([line["loss"] for line in read_metrics(tmp_path / name)] for name in names)
    assert len(plain) == 4
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert list(kernels.rglob("*.cpp"))
