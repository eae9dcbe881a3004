"""Two SentencePiece models that cut text for one vocabulary: pieces are looked up by text, as in Transformers."""

import json
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.tokenizer import SOURCE_FILE, TARGET_FILE, UNK_ID
from tests.conftest import bundled
from zeromt.importing.pieces import read_vocabularies


def test_a_character_that_one_model_lacks_has_its_row_where_the_vocabulary_lists_it(tmp_path: Path) -> None:
    """Also where several of them stand together, which SentencePiece makes one piece, and in either direction."""
    transformers = pytest.importorskip("transformers")
    english, french = (bundled(side, slice(400)).decode().splitlines() for side in ("en", "fr"))
    section = TokenizerSection(vocab_size=200, threads=1, vocabulary="separate")
    plain = [(a, b) for a, b in zip(english, french, strict=True) if a.isascii() and "k" not in b and "w" not in b]
    files = train_tokenizer(section, *zip(*plain, strict=True)).files()
    models = {name: SentencePieceProcessor(model_proto=files[name]) for name in (SOURCE_FILE, TARGET_FILE)}
    pieces = dict.fromkeys(m.id_to_piece(i) for m in models.values() for i in range(4, m.get_piece_size()))
    vocabulary = ["</s>", "<unk>", *pieces, "éè", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(vocabulary)}))
    for name, side in ((SOURCE_FILE, "source"), (TARGET_FILE, "target")):
        (tmp_path / f"{side}.spm").write_bytes(files[name])
    size = len(vocabulary)
    ids = {"pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0}
    found = read_vocabularies(tmp_path, {"model_type": "marian", **ids}, sizes=(size, size))
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)

    sources = [*english[:20], "the café", "é à ç", "un éèà", "aéèb éè", "naïve ☃ é☃", "ç" * 3, ""]
    targets = [*french[:20], "un kiwi", "k w kw wkw", "☃ k☃ w", ""]
    ours = found.tokenizer.encode_source(sources)
    assert theirs(sources)["input_ids"] == [[found.source.rows[i] for i in (*row, 2)] for row in ours]
    assert UNK_ID not in found.tokenizer.encode_source(["the café"])[0]
    assert UNK_ID in found.tokenizer.encode_source(["the ☃"])[0]
    ours = found.tokenizer.encode_target(targets)
    assert theirs(text_target=targets)["input_ids"] == [[found.target.rows[i] for i in (*row, 2)] for row in ours]
    assert UNK_ID not in found.tokenizer.encode_target(["un kiwi"])[0]
