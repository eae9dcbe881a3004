"""`zeromt export` from the outside: what it refuses, and a model that has learnt something."""

import json
import sys
from pathlib import Path

import pytest

from configs import UserError
from data_pipeline.tokenizer import Tokenizer
from tests.conftest import Refused
from tests.trainer.conftest import TrainedRun
from tests.zeromt.formats.test_ctranslate2 import their_greedy as ctranslate2_greedy
from tests.zeromt.formats.test_huggingface import their_greedy as transformers_greedy
from tests.zeromt.made import greedy, make_run
from zeromt.cli.main import main
from zeromt.formats.check import load_exact
from zeromt.formats.plain import optional


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{run}", "--format", "onnx", "-o", "{out}"], "--format"),
        (["{run}", "--format", "ctranslate2", "-o", "{filled}"], "is not empty"),
        (["{run}", "--format", "ctranslate2", "-o", "{file}"], "is a link or a file"),
        (["{run}", "--format", "ctranslate2", "-o", "{out}/deeper"], "no such folder"),
        (["{run}", "--format", "huggingface", "-o", "{out}", "--quantization", "int8"], "--quantization: 'int8'"),
        (["{run}", "--format", "ctranslate2", "-o", "{out}", "--source", "{file}"], "--reference: missing"),
        (["{filled}", "--format", "ctranslate2", "-o", "{out}"], "neither a run's folder nor a checkpoint"),
    ],
)
def test_refuses_in_one_line(
    arguments: list[str], said: str, joint: Tokenizer, tmp_path: Path, refused: Refused
) -> None:
    make_run(tmp_path / "run", joint)
    (tmp_path / "filled").mkdir()
    (tmp_path / "filled" / "file").touch()
    places = {"run": tmp_path / "run", "out": tmp_path / "out", "filled": tmp_path / "filled"}
    filled = [a.format(**places, file=tmp_path / "filled" / "file") for a in arguments]
    assert said in refused("export", *filled)
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"needs the package transformers .*pip install 'zeromt\[export\]'"):
        optional("transformers", "--format huggingface")


def test_a_broken_dataset_is_left_out(joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "index.json").write_text("{}")
    make_run(tmp_path / "run", joint, dataset=str(tmp_path / "data"))
    assert main(["export", str(tmp_path / "run"), "--format", "ctranslate2", "-o", str(tmp_path / "out")]) == 0
    assert "validation set left out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_trained_model_translates_alike(
    trained: TrainedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    lines = trained.source.read_text().splitlines()[:40]
    loaded = load_exact(trained.folder)
    ours = greedy(loaded.model, loaded.tokenizer, lines, longest=30)
    hugging, ctranslate = tmp_path / "huggingface", tmp_path / "ctranslate2"
    text = ["--source", str(trained.source), "--reference", str(trained.reference)]
    assert main(["export", str(trained.folder), "--format", "huggingface", "-o", str(hugging)]) == 0
    quantised = ["--format", "ctranslate2", "--quantization", "int8_float32", *text]
    assert main(["export", str(trained.folder), "-o", str(tmp_path / "int8"), *quantised]) == 0
    said = capsys.readouterr().out
    assert "tokenizer:" not in said, "the validation set is at hand, and the tokenizers agree on it"
    assert "BLEU of 100 sentences: " in said
    assert main(["export", str(trained.folder), "--format", "ctranslate2", "-o", str(ctranslate)]) == 0
    assert transformers_greedy(hugging, lines, longest=30) == ours
    assert ctranslate2_greedy(ctranslate, loaded.tokenizer, lines, longest=30) == ours
    assert json.loads((ctranslate / "config.json").read_text())["add_source_eos"] is True
