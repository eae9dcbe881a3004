"""Settings that change what a model computes or how its text is written: honoured, or refused by name."""

from pathlib import Path
from typing import Any

import pytest

from configs import load_run
from tests.zeromt.importing.made import edit, imported, refusal, save_marian, save_nllb
from tests.zeromt.importing.test_importing import check_same


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    save_marian(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.mark.parametrize(
    "options",
    [
        {"scale_embedding": False},
        {"activation_function": "gelu"},
        {"share_encoder_decoder_embeddings": False},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
        {"decoder_layers": 2, "encoder_layers": 1},
    ],
)
def test_honoured(options: dict[str, Any], tmp_path: Path) -> None:
    theirs = save_marian(tmp_path / "theirs", **options)
    check_same(tmp_path / "theirs", theirs, [4, 9, 12, 30, 2], [1, 5, 8, 40])


@pytest.mark.parametrize("scale", [None, False])
def test_what_config_json_leaves_out_is_what_transformers_takes(scale: bool | None, tmp_path: Path) -> None:
    """M2M100's scale_embedding is true unless it is said."""
    theirs = save_nllb(tmp_path / "theirs", **({} if scale is None else {"scale_embedding": scale}))
    edit(tmp_path / "theirs" / "config.json", scale_embedding=scale)
    check_same(tmp_path / "theirs", theirs, [20, 9, 12, 30, 2], [1, 5, 8, 40])


def test_what_is_said_of_separate_vocabularies_counts(
    marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A vocabulary that is left over is not read; one that is missing is named."""
    (marian / "target_vocab.json").write_text('{"left over": 0}')
    edit(marian / "tokenizer_config.json", separate_vocabs=False)
    imported(marian, tmp_path / "run", capsys)
    (marian / "target_vocab.json").unlink()
    edit(marian / "tokenizer_config.json", separate_vocabs=True)
    assert "target_vocab.json cannot be read" in refusal(marian, tmp_path / "other", capsys)


def test_m2m100s_languages_go_by_language_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = tmp_path / "theirs"
    save_nllb(theirs)
    names = ["<s>", "<pad>", "</s>", "<unk>", *(f"piece{i}" for i in range(70))]
    (theirs / "vocab.json").write_text("{" + ", ".join(f'"{n}": {i}' for i, n in enumerate(names)) + "}")
    (theirs / "tokenizer_config.json").unlink()
    edit(theirs / "tokenizer_config.json", tokenizer_class="M2M100Tokenizer", language_codes="wmt21", tgt_lang="is")
    assert "to is;" in imported(theirs, tmp_path / "run", capsys)
    assert load_run(str(tmp_path / "run" / "config.yaml")).prepare.target_language == "is"
    edit(theirs / "tokenizer_config.json", language_codes="other")
    assert "language_codes 'other'" in refusal(theirs, tmp_path / "other", capsys)
