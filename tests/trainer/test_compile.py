"""Layers that torch.compile made, under ZeRO on two ranks, against the same without it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import Corpus, Start, ranks, read_metrics
from tests.trainer.test_model_options import SETTINGS


@pytest.mark.slow  # compiling takes minutes
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_the_same_losses(
    stage: int, corpus_en_fr: Corpus, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "kernels"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(kernels))
    common = [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}", f"engine.zero_stage={stage}"]
    names = ("plain", "compiled")
    runs = [[*common, f"name={name}", f"engine.compile={str(name == 'compiled').lower()}"] for name in names]
    done = start(*ranks(2, "tests.trainer.inference.many_runs", json.dumps(runs))).finish(900)
    assert done.code == 0, done.err[-3000:]
    plain, compiled = ([line["loss"] for line in read_metrics(tmp_path / name)] for name in names)
    assert len(plain) == 4
    assert compiled == pytest.approx(plain, rel=1e-5)
    assert list(kernels.rglob("*.cpp"))
