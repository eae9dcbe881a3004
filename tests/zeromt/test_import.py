"""`import zeromt`: quick, safe, and what it gives."""

from importlib import metadata
from pathlib import Path

import pytest

import zeromt
from tests.conftest import ask_python
from tests.small import small_runs


def test_importing_it_imports_nothing_else() -> None:
    names = {"configs", "model", "data_pipeline", "trainer", "launcher", "torch", "numpy"}
    assert ask_python(f"import sys, zeromt; answer = list({names} & set(sys.modules))") == []


def test_a_trained_model() -> None:
    trained = zeromt.load(small_runs() / "runs" / "small")
    assert trained.checkpoint.manifest["step"] == 10
    assert not trained.model.training
    assert trained.tokenizer.target_vocab_size == trained.model.output.weight.shape[0]


def test_errors_and_version(tmp_path: Path) -> None:
    with pytest.raises(zeromt.UserError, match="neither a run's folder nor a checkpoint"):
        zeromt.load(tmp_path)
    assert zeromt.__version__ == metadata.version("zeromt")
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        zeromt.lod  # noqa: B018
