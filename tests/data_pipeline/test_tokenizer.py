import io
import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from configs import TokenizerSection, UserError
from data_pipeline.dataset import Dataset
from data_pipeline.raw_text import TextChunk
from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, TARGET_FILE, Tokenizer
from data_pipeline.tokenizer_training import SEGMENT_CHARS, Sample, segments, train_tokenizer

WORDS = ["the cat sat on a mat", "le chat est sur un tapis", "dogs do not", "quick brown foxes jump"]


def _sample(size: int = 1000, seed: int = 1, rows: int = 300, chunk: int = 50) -> Sample:
    sample = Sample(size, seed)
    for first in range(0, rows, chunk):
        numbers = range(first, min(first + chunk, rows))
        sources = [f"{WORDS[n % 4]} {n}" for n in numbers]
        sample.add(TextChunk("s", "t", first + 1, sources, [s.upper() for s in sources]))
    return sample


def _section(**settings: Any) -> TokenizerSection:
    return TokenizerSection(**{"vocab_size": 80, "threads": 1, **settings})


def _model(**settings: Any) -> bytes:
    buffer = io.BytesIO()
    lines = iter(_sample().sources)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=buffer, vocab_size=60, minloglevel=2, **settings
    )
    return buffer.getvalue()


def test_text_survives(small: Dataset) -> None:
    lines = ["Tom is here.", "  I   am 12 ", "", "\u3000"]
    tokenizer = small.tokenizer
    pieces = tokenizer.encode_target(lines)
    assert tokenizer.decode_target(pieces) == ["Tom is here.", "I am 12", "", ""]
    assert not {0, 1, 2} & {piece for row in pieces for piece in row}
    # Marks and ids that only a padded output layer has are passed over.
    assert tokenizer.decode_target([[1, *pieces[0], 2, 0, 0, 500, 10_000], [], [2]]) == ["Tom is here.", "", ""]


def test_marks_in_text_are_text(small: Dataset) -> None:
    for text in ("<s>", "</s> <pad>", "<unk>"):
        assert not {0, 1, 2} & set(small.tokenizer.encode_source([text])[0])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_sample_gives_the_same_bytes(kind: str) -> None:
    section = _section(kind=kind, threads=2)
    first, second = train_tokenizer(section, _sample()), train_tokenizer(section, _sample())
    assert first.files() == second.files()
    assert first.fingerprint == second.fingerprint


def test_separate_vocabularies(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(_section(vocabulary="separate", target_vocab_size=90), _sample())
    assert (tokenizer.source_vocab_size, tokenizer.target_vocab_size) == (80, 90)
    assert set(tokenizer.files()) == {SOURCE_FILE, TARGET_FILE}
    assert not tokenizer.is_joint
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode_source(WORDS) == tokenizer.encode_source(WORDS)
    assert again.decode_target(again.encode_target(["DOGS DO NOT"])) == ["DOGS DO NOT"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("vocabulary", ["joint", "separate"])
def test_too_large_a_vocabulary_says_the_largest(kind: str, vocabulary: str) -> None:
    with pytest.raises(UserError, match=r"prepare.tokenizer.vocab_size: 9000 pieces .* at most \d+$") as caught:
        train_tokenizer(_section(kind=kind, vocabulary=vocabulary, vocab_size=9000), _sample())
    found = re.search(r"at most (\d+)", str(caught.value))
    assert found is not None
    largest = int(found[1])
    if vocabulary == "joint":
        tokenizer = train_tokenizer(_section(kind=kind, vocab_size=largest), _sample())
        assert tokenizer.source_vocab_size == largest
        with pytest.raises(UserError, match=f"at most {largest}$"):
            train_tokenizer(_section(kind=kind, vocab_size=largest + 1), _sample())


def test_the_target_vocabulary_is_named() -> None:
    with pytest.raises(UserError, match=r"prepare.tokenizer.target_vocab_size: 9000 pieces"):
        train_tokenizer(_section(vocabulary="separate", target_vocab_size=9000), _sample())


def test_too_small_a_vocabulary_says_the_smallest() -> None:
    with pytest.raises(UserError, match=r"16 pieces .* at least (\d+)"):
        train_tokenizer(_section(vocab_size=16), _sample())


def test_long_lines_are_not_lost() -> None:
    # SentencePiece leaves out a line of more than 4,192 bytes: its letters would become unknown.
    sample = Sample(10, 1)
    long = "☃ snow " * 2000 + "x" * 5000 + " ☂ rain"
    sample.add(TextChunk("s", "t", 1, [long], ["short and sweet"]))
    tokenizer = train_tokenizer(_section(vocab_size=48), sample)
    assert tokenizer.decode_target(tokenizer.encode_target(["☃ ☂"])) == ["☃ ☂"]
    parts = list(segments([long]))
    assert "".join(parts) == long
    assert max(map(len, parts)) <= SEGMENT_CHARS


def test_the_sample_is_even_and_bounded() -> None:
    counts = [0] * 10
    for seed in range(60):
        sample = _sample(size=30, seed=seed)
        assert len(sample.sources) == len(set(sample.sources)) == 30
        assert sample.num_seen == 300
        for source, target in zip(sample.sources, sample.targets, strict=True):
            assert source.upper() == target
            counts[int(source.split()[-1]) // 30] += 1
    assert 120 < min(counts) <= max(counts) < 240  # 180 each, on average
    assert _sample(size=30, seed=5).sources == _sample(size=30, seed=5).sources


def test_byte_fallback_gives_one_line() -> None:
    tokenizer = train_tokenizer(_section(byte_fallback=True, vocab_size=330), _sample())
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
    with pytest.raises(UserError, match=r"allowed is pad=0, bos=1, eos=2, unk=3"):
        Tokenizer({JOINT_FILE: model})


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    with pytest.raises(UserError, match=f"{JOINT_FILE}: is no SentencePiece model"):
        Tokenizer({JOINT_FILE: content})


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds none"):
        Tokenizer.load(tmp_path)
    (tmp_path / SOURCE_FILE).write_bytes(b"x")
    with pytest.raises(UserError, match=SOURCE_FILE):
        Tokenizer.load(tmp_path)
