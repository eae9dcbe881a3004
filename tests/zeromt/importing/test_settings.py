"""Settings that change what a model computes or how its text is written: honoured, or refused by name."""

from pathlib import Path
from typing import Any

import pytest

from configs import load_run
from data_pipeline.tokenizer import JOINT_FILE, Tokenizer
from tests.zeromt.importing.made import edit, imported, refusal, save_marian, save_nllb
from tests.zeromt.importing.test_importing import check_same


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    save_marian(tmp_path / "theirs")
    return tmp_path / "theirs"


@pytest.fixture
def nllb(tmp_path: Path) -> Path:
    save_nllb(tmp_path / "theirs")
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("normalize_embedding", True),
        ("layernorm_embedding", True),
        ("normalize_before", True),
        ("add_final_layer_norm", True),
        ("static_position_embeddings", False),
        ("do_blenderbot_90_layernorm", True),
        ("activation_function", "gelu_new"),
        ("decoder_attention_heads", 1),
        ("decoder_ffn_dim", 48),
        ("tie_encoder_decoder", True),
        ("is_decoder", True),
        ("quantization_config", {"load_in_8bit": True}),
        ("auto_map", {"AutoModel": "own.py"}),
        ("architectures", ["MarianForCausalLM"]),
        ("tokenizer_class", "T5Tokenizer"),
        ("scale_embedding", "yes"),
        ("vocab_size", 60),
        ("pad_token_id", True),
    ],
)
def test_config_json(
    name: str, value: object, marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(marian / "config.json", **{name: value})
    error = refusal(marian, tmp_path / "run", capsys)
    assert name.removesuffix("_class").removesuffix("_size") in error or "(60, 16)" in error


def test_decoder_vocab_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_marian(tmp_path / "theirs", share_encoder_decoder_embeddings=False)
    edit(tmp_path / "theirs" / "config.json", decoder_vocab_size=60)
    assert "model.decoder.embed_tokens.weight is (88, 16); allowed is (60, 16)" in refusal(
        tmp_path / "theirs", tmp_path / "run", capsys
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"legacy_behaviour": True}, "legacy_behaviour true puts a source's language behind EOS"),
        ({"tokenizer_class": "SMALL100Tokenizer"}, "tokenizer_class 'SMALL100Tokenizer'"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs {'enable_sampling': True}"),
        ({"added_tokens_decoder": {"5": {"content": "<glossary>"}}}, "the tokenizer cuts <glossary> from a text"),
        ({"added_tokens_decoder": {"900": {"content": "deu_Latn"}}}, "none for deu_Latn"),
        ({"src_lang": "xxx_Latn", "tgt_lang": "fra_Latn"}, "src_lang 'xxx_Latn' is none of the tokenizer's languages"),
    ],
)
def test_tokenizer_config_json(
    changes: dict[str, Any], said: str, nllb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(nllb / "tokenizer_config.json", **changes)
    assert said in refusal(nllb, tmp_path / "run", capsys)


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
    assert "language_codes 'other'; allowed is m2m100, wmt21" in refusal(theirs, tmp_path / "other", capsys)


def test_a_sentencepiece_model_of_another_order(
    nllb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], joint: Tokenizer
) -> None:
    """Every piece would be another's row."""
    (nllb / "sentencepiece.bpe.model").write_bytes(joint.files()[JOINT_FILE])
    assert "sentencepiece.bpe.model begins with <pad>, <s>, </s>; allowed is <unk>, <s>, </s>" in refusal(
        nllb, tmp_path / "run", capsys
    )


def test_languages_that_no_file_names(nllb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(nllb / "tokenizer_config.json", added_tokens_decoder=None)
    assert "no file says which pieces are languages" in refusal(nllb, tmp_path / "run", capsys)
