import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from configs import TokenizerSection, UserError
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import JOINT_FILE, Tokenizer

WORDS = ["the cat sat on a mat", "le chat est sur un tapis", "dogs do not", "quick brown foxes jump"]
LINES = [f"{WORDS[n % 4]} {n}" for n in range(300)]
TAGS = [">>fra<<", ">>deu<<"]
TAGGED = TokenizerSection(vocab_size=120, threads=1, tags=TAGS)


def _model(**settings: Any) -> bytes:
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=buffer, vocab_size=60, minloglevel=2, **settings
    )
    return buffer.getvalue()


@pytest.fixture(scope="module")
def tagged() -> Tokenizer:
    """With the tags in its vocabulary, and their characters in its text."""
    lines = [*LINES, *TAGS, "</s> <s> <pad>"]
    return train_tokenizer(TAGGED, lines, [line.upper() for line in lines])


def test_text_survives(small: Dataset) -> None:
    lines = ["Tom is here.", "  I   am 12 ", "", "\u3000"]
    tokenizer = small.tokenizer
    pieces = tokenizer.encode_target(lines)
    assert tokenizer.decode_target(pieces) == ["Tom is here.", "I am 12", "", ""]
    assert not {0, 1, 2} & {piece for row in pieces for piece in row}
    # Marks and ids that only a padded output layer has are passed over.
    assert tokenizer.decode_target([[1, *pieces[0], 2, 0, 0, 500, 10_000], [], [2]]) == ["Tom is here.", "", ""]


def test_a_tag_is_a_piece_at_the_start_of_a_source_line_only(tagged: Tokenizer) -> None:
    fra, deu = 4, 5
    plain = sentencepiece.SentencePieceProcessor(model_proto=tagged.files()[JOINT_FILE])
    cases = [
        (">>fra<< the cat", [fra, *plain.encode("the cat")]),
        (">>fra<<the cat", [fra, *plain.encode("the cat")]),
        (">>fra<<  the cat", [fra, *plain.encode(" the cat")]),
        (">>deu<<", [deu]),
        (">>deu<< ", [deu]),
        (">>fra<< >>deu<< the cat", [fra, *plain.encode(">>deu<< the cat")]),
        (" >>fra<< the cat", plain.encode(">>fra<< the cat")),
        ("the >>fra<< cat", plain.encode("the >>fra<< cat")),
        (">>spa<< the cat", plain.encode(">>spa<< the cat")),
        (">> fra<< the cat", plain.encode(">> fra<< the cat")),
        (">>fra<", plain.encode(">>fra<")),
        ("the cat", plain.encode("the cat")),
        ("a </s> <pad> <unk> b", plain.encode("a </s> <pad> <unk> b")),
        ("", []),
        (" ", []),
    ]
    assert tagged.encode_source([line for line, _ in cases]) == [row for _, row in cases]
    for row in tagged.encode_source([line for line, _ in cases]):
        assert not {0, 1, 2, fra, deu} & set(row[1:])  # nothing in a text becomes a control piece
    for line in (">>fra<< the cat", "a >>deu<<"):
        row = tagged.encode_target([line])[0]
        assert row == plain.encode(line)
        assert not {0, 1, 2, fra, deu} & set(row)


def test_a_tag_by_another_code_of_its_language(tagged: Tokenizer) -> None:
    for number, codes in enumerate((("fr", "fre", "fra_Latn", "fr-FR"), ("de", "ger", "DEU", "deu_Latn"))):
        lines = [f">>{code}<< the cat" for code in codes]
        assert tagged.encode_source(lines) == tagged.encode_source([f"{TAGS[number]} the cat"]) * len(codes)
        assert not tagged.tags_that_are_text(lines)
    for other in (">>es<<", ">>formal<<"):
        assert tagged.encode_source([f"{other} the cat"])[0][0] > 5


def test_tags_of_separate_vocabularies(tmp_path: Path) -> None:
    section = TokenizerSection(vocabulary="separate", vocab_size=80, target_vocab_size=90, threads=1, tags=TAGS)
    tokenizer = train_tokenizer(section, LINES, [line.upper() for line in LINES])
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.tags == tuple(TAGS)
    assert again.encode_source([">>deu<< a cat"])[0][0] == 5
    assert (again.source_vocab_size, again.target_vocab_size) == (80, 90)
    assert not again._target.is_control(4)


def test_byte_fallback_gives_one_line() -> None:
    tokenizer = train_tokenizer(TokenizerSection(byte_fallback=True, vocab_size=330, threads=1), LINES, LINES)
    assert tokenizer.decode_target(tokenizer.encode_target(["a ☃"])) == ["a ☃"]
    feed = next(n for n in range(330) if tokenizer._target.id_to_piece(n) == "<0x0A>")
    assert "\n" not in tokenizer.decode_target([[*tokenizer.encode_target(["a"])[0], feed]])[0]


BAD_MODELS = [
    ("pad equals eos", {"pad_id": 2, "bos_id": 1, "eos_id": 2, "unk_id": 0}),
    ("pad missing", {}),
    ("bos missing", {"pad_id": 0, "bos_id": -1, "eos_id": 2, "unk_id": 3}),
    ("other order", {"pad_id": 3, "bos_id": 1, "eos_id": 2, "unk_id": 0}),
]


@pytest.mark.parametrize(("name", "ids"), BAD_MODELS, ids=[name for name, _ in BAD_MODELS])
def test_other_special_pieces_are_refused(name: str, ids: dict[str, int]) -> None:
    try:
        model = _model(**ids)
    except RuntimeError:
        # SentencePiece itself makes no model whose pad is its eos: take one and rename a piece.
        good = _model(pad_id=0, bos_id=1, eos_id=2, unk_id=3)
        model = good.replace(b"<pad>", b"<bad>")
    with pytest.raises(UserError, match=JOINT_FILE):
        Tokenizer({JOINT_FILE: model})
