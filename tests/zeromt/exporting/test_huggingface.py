"""What Transformers loads from an export computes what the model does, for every option that it has."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.exports import export_as
from tests.zeromt.made import ENGLISH, FRENCH, TAG, greedy, make_run, make_tokenizer
from zeromt.formats.as_huggingface import architecture

transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

LINES = [*ENGLISH[:5], f"{TAG} {ENGLISH[0]}", "</s> dogs", ""]


export = partial(export_as, "huggingface")


def their_greedy(folder: Path, lines: list[str], longest: int = 12) -> list[list[int]]:
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    rows = model.generate(**batch, num_beams=1, max_new_tokens=longest, forced_eos_token_id=None).tolist()
    return [[i for i in row[1:] if i > 2] for row in rows]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Pegasus", {}),
        ("Pegasus", {"position_layout": "halves", "activation": "gelu", "output_bias": True}),
        ("Pegasus", {"num_kv_heads": 1, "attention_scale": "model_width", "activation": "silu"}),
        ("Pegasus", {"attention_bias": False, "attention_output_bias": False, "feed_forward_bias": False}),
        ("Pegasus", {"norm": "sample", "scale_embeddings": False, "activation": "none"}),
        ("Blenderbot", {"positions": "learned", "position_offset": 2}),
        ("Blenderbot", {"positions": "none"}),
        ("Blenderbot", {"position_layout": "tensor2tensor", "position_offset": 2}),
        ("Marian", {"norm_position": "post", "output_bias": True}),
        ("Marian", {"norm_position": "post_block_dropout", "position_layout": "halves"}),
        ("Marian", {"norm_position": "post", "tied_embeddings": "decoder"}),
        ("Marian", {"norm_position": "post", "tied_embeddings": "none"}),
        ("Marian", {"norm_position": "post", "tied_embeddings": "decoder", "two": True}),
        ("Marian", {"norm_position": "post", "tied_embeddings": "none", "two": True}),
    ],
)
def test_the_same_greedy_output(
    name: str, options: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one vocabulary, or two."""
    tokenizer = make_tokenizer(joint=not options.pop("two", False))
    model = make_run(tmp_path / "run", tokenizer, **options)
    assert architecture(model.section) == name
    export(tmp_path / "run", tmp_path / "out")
    assert "logits within" in capsys.readouterr().out
    assert their_greedy(tmp_path / "out", LINES) == greedy(model, tokenizer, LINES)


def test_the_tokenizers_agree(joint: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "run", joint)
    (tmp_path / "en").write_text("\n".join([*LINES[:-1], "  two  spaces\there", "é ü 日本"]))
    (tmp_path / "fr").write_text("\n".join(FRENCH[:9]))
    export(tmp_path / "run", tmp_path / "out", source=str(tmp_path / "en"), reference=str(tmp_path / "fr"))
    assert "tokenizer:" not in capsys.readouterr().out
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert theirs(LINES)["input_ids"] == [[*ids, 2] for ids in joint.encode_source(LINES)]


def test_half_precision_is_checked_before(joint: Tokenizer, tmp_path: Path) -> None:
    make_run(tmp_path / "run", joint)
    export(tmp_path / "run", tmp_path / "out", quantization="bfloat16")
    assert transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").dtype == torch.bfloat16
