"""`zeromt export` from the outside: what it refuses, and a model that has learnt something."""

import sys
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from data_pipeline.tokenizer import Tokenizer
from tests.conftest import Refused
from tests.zeromt.made import make_run
from zeromt.cli.main import main
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


@pytest.mark.parametrize(
    ("format", "options", "said"),
    [
        ("ctranslate2", {"norm": "scalar"}, ["model.norm.kind: 'scalar'"]),
        ("ctranslate2", {"norm_position": "post", "final_norm": True}, ["model.final_norm: true with post"]),
        ("ctranslate2", {"activation": "none"}, ["model.feed_forward.kind: 'none'"]),
        ("huggingface", {"norm": "rms"}, ["model.norm.kind: 'rms'"]),
        ("huggingface", {"norm_eps": 1e-6}, ["model.norm.eps: 1e-06 must be 1e-05"]),
        ("huggingface", {"final_norm": False}, ["model.final_norm: false with pre"]),
        ("huggingface", {"norm_position": "post", "final_norm": True}, ["model.final_norm: true with post"]),
        ("huggingface", {"head_width": 4}, ["model.attention.head_width: 4 must be d_model / num_heads"]),
        ("huggingface", {"positions": "rotary", "activation": "swiglu"},
         ["model.positions.kind: 'rotary'", "model.feed_forward.kind: 'swiglu'"]),
        ("huggingface", {"norm_position": "post", "positions": "learned"},
         ["model.positions.kind: 'learned' with post-norm"]),
        ("huggingface", {"tied_embeddings": "decoder"}, ["model.tied_embeddings: 'decoder' with pre-norm"]),
    ],
)  # fmt: skip
def test_refuses_naming_every_option(
    format: str, options: dict[str, Any], said: list[str], joint: Tokenizer, tmp_path: Path, refused: Refused
) -> None:
    make_run(tmp_path / "run", joint, **options)
    message = refused("export", "run", "--format", format, "-o", "out")
    assert [word in message for word in said] == [True] * message.count("model.")
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "state") == ["run"]


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
