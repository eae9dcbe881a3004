"""What CTranslate2 loads from an export computes what the model does, for every option that it has."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.exports import export_as
from tests.zeromt.made import ENGLISH, FRENCH, TAG, greedy, make_run, make_tokenizer
from zeromt.formats import as_ctranslate2
from zeromt.formats.check import ExportError
from zeromt.formats.plain import plain_weights

ctranslate2 = pytest.importorskip("ctranslate2", reason="the package ctranslate2 is not installed")

LINES = [*ENGLISH[:5], f"{TAG} {ENGLISH[0]}", "</s> dogs"]


export = partial(export_as, "ctranslate2")


def their_greedy(folder: Path, tokenizer: Tokenizer, lines: list[str], longest: int = 12) -> list[list[int]]:
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    pieces = tokenizer.source_vocabulary()
    results = translator.translate_batch(
        [[pieces[i] for i in ids] for ids in tokenizer.encode_source(lines)],
        beam_size=1,
        max_decoding_length=longest,
        suppress_sequences=[["<pad>"], ["<s>"]],
    )
    ids = {piece: i for i, piece in enumerate(tokenizer.target_vocabulary())}
    return [[ids[piece] for piece in result.hypotheses[0]] for result in results]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_position": "post", "position_layout": "halves", "activation": "gelu", "output_bias": True},
        {"norm_position": "post_dropout_last", "norm": "sample", "norm_eps": 1e-3},
        {"norm": "rms", "norm_eps": 1e-6, "positions": "rotary", "activation": "swiglu", "num_kv_heads": 1},
        {"positions": "rotary", "position_base": 500.0},
        {"final_norm": False, "attention_bias": False, "attention_output_bias": False, "feed_forward_bias": False},
        {"head_width": 12, "attention_scale": "model_width", "activation": "silu"},
        {"head_width": 6, "positions": "rotary", "num_kv_heads": 1},
        {"positions": "learned", "tied_embeddings": "none", "scale_embeddings": False},
        {"positions": "none", "tied_embeddings": "decoder"},
        {"position_layout": "tensor2tensor", "position_offset": 2},
        {"two": True, "tied_embeddings": "decoder"},
    ],
)
def test_the_same_greedy_output(options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With one vocabulary, or two."""
    tokenizer = make_tokenizer(joint=not options.pop("two", False))
    model = make_run(tmp_path / "run", tokenizer, **options)
    export(tmp_path / "run", tmp_path / "out")
    assert "log-probabilities within" in capsys.readouterr().out
    assert their_greedy(tmp_path / "out", tokenizer, LINES) == greedy(model, tokenizer, LINES)
    assert Tokenizer.load(tmp_path / "out").fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("quantization", ["int8", "int8_float32", "int16", "float16", "bfloat16", "float32"])
def test_quantised_after_the_check(
    quantization: str, joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", joint)
    (tmp_path / "en").write_text("\n".join(ENGLISH[:9]))
    (tmp_path / "fr").write_text("\n".join(FRENCH[:9]))
    text = {"source": str(tmp_path / "en"), "reference": str(tmp_path / "fr")}
    export(tmp_path / "run", tmp_path / "out", quantization=quantization, **text)
    said = capsys.readouterr().out
    assert "log-probabilities within" in said
    assert ("BLEU of 9 sentences" in said) == (quantization != "float32")
    translator = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
    assert translator.translate_batch([["▁"]], max_decoding_length=9)
    assert not [p for p in (tmp_path / "out").iterdir() if p.is_dir()]


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_a_wrong_weight_writes_nothing(
    quantization: str | None, joint: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", joint)

    def swapped(model: Any) -> Any:
        weights = plain_weights(model)
        name = "decoder.layers.0.cross_attention.query.bias"
        return {**weights, name: weights[name].flip(0)}

    monkeypatch.setattr(as_ctranslate2, "plain_weights", swapped)
    with pytest.raises(ExportError, match="nothing was written"):
        export(tmp_path / "run", tmp_path / "out", quantization=quantization)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
