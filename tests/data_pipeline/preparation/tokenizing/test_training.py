import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CorpusFiles, TokenizerSection, UserError
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.raw.corpus import corpus_units
from data_pipeline.preparation.raw.unit import RawSpan
from data_pipeline.preparation.tokenizing import (
    SEGMENT_CHARS,
    Sample,
    existing_tokenizer,
    segments,
    train_tokenizer,
)
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE

WORDS = ["the cat sat on a mat", "le chat est sur un tapis", "dogs do not", "quick brown foxes jump"]
SOURCES = [f"{WORDS[n % 4]} {n}" for n in range(300)]
TARGETS = [line.upper() for line in SOURCES]
[UNIT] = corpus_units(CorpusFiles(source=["a"], target=["b"]), ".")


def _section(**settings: Any) -> TokenizerSection:
    return TokenizerSection(**{"vocab_size": 80, "threads": 1, **settings})


def _part(first: int, sources: list[str], targets: list[str]) -> RawSpan:
    return RawSpan(UNIT, first + 1, tuple([line.encode() for line in lines] for lines in (sources, targets)))


def _spans(size: int = 50) -> list[RawSpan]:
    return [_part(n, SOURCES[n : n + size], TARGETS[n : n + size]) for n in range(0, len(SOURCES), size)]


def _drawn(size: int, max_bytes: int = 1 << 30, seed: int = 1) -> list[str]:
    sample = Sample(size, max_bytes, seed)
    for number, span in enumerate(_spans()):
        sample.add(span, number)
    sources, targets = sample.finish()
    assert targets == [line.upper() for line in sources]
    return sources


@pytest.mark.parametrize("size", [1, 30, 299, 300, 5000])
@pytest.mark.parametrize("max_bytes", [1, 500, 2000, 1 << 30])
def test_the_sample_has_the_smallest_keys(size: int, max_bytes: int) -> None:
    keys = np.concatenate([random_bits(50, size, Purpose.TOKENIZER_SAMPLE, number) for number in range(6)])
    kept, room = [], max_bytes
    for row in np.argsort(keys).tolist()[:size]:
        room -= len(f"{SOURCES[row]}\n{TARGETS[row]}".encode())
        if room < 0:
            break
        kept.append(row)
    assert _drawn(size, max_bytes, seed=size) == [SOURCES[row] for row in sorted(kept)]


def test_the_order_of_parts_does_not_matter() -> None:
    for seed in range(10):
        numbered = list(enumerate(_spans()))
        random.Random(seed).shuffle(numbered)
        sample = Sample(40, 2500, 1)
        for number, span in numbered:
            sample.add(span, number)
        assert sample.finish()[0] == _drawn(40, 2500)


def test_pairs_with_a_blank_side_are_passed_over() -> None:
    sample = Sample(10, 1000, 1)
    sample.add(_part(0, ["a", "", " ", "b", "\u3000"], ["A", "x", "y", " \t", "z"]), 0)
    assert sample.finish() == (["a"], ["A"])
    assert Sample(10, 1000, 1).finish() == ([], [])


def test_long_lines_take_no_room_in_the_sample() -> None:
    sample = Sample(100, 1000, 1, max_characters=20)
    sample.add(_part(0, ["x" * 990, "a", " " * 99, "b"], ["A", "y" * 21, "", "B"]), 0)
    assert sample.num_long == 2
    assert sample.finish() == (["b"], ["B"])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_sample_gives_the_same_bytes(kind: str) -> None:
    section = _section(kind=kind, threads=2, tags=[">>fra<<"])
    first, second = (train_tokenizer(section, SOURCES, TARGETS) for _ in range(2))
    assert first.files() == second.files()
    assert first.fingerprint == second.fingerprint


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("vocabulary", ["joint", "separate"])
def test_too_large_a_vocabulary_says_the_largest(kind: str, vocabulary: str) -> None:
    with pytest.raises(UserError, match=r"prepare.tokenizer.vocab_size: 9000 pieces .* at most \d+$") as caught:
        train_tokenizer(_section(kind=kind, vocabulary=vocabulary, vocab_size=9000), SOURCES, TARGETS)
    found = re.search(r"at most (\d+)", str(caught.value))
    assert found is not None
    largest = int(found[1])
    if vocabulary == "joint":
        tokenizer = train_tokenizer(_section(kind=kind, vocab_size=largest), SOURCES, TARGETS)
        assert tokenizer.source_vocab_size == largest
        with pytest.raises(UserError, match=f"at most {largest}$"):
            train_tokenizer(_section(kind=kind, vocab_size=largest + 1), SOURCES, TARGETS)


def test_the_target_vocabulary_is_named() -> None:
    with pytest.raises(UserError, match=r"prepare.tokenizer.target_vocab_size: 9000 pieces"):
        train_tokenizer(_section(vocabulary="separate", target_vocab_size=9000), SOURCES, TARGETS)


def test_long_lines_are_not_lost() -> None:
    # SentencePiece leaves out a line of more than 4,192 bytes: its letters would become unknown.
    long = "☃ snow " * 2000 + "x" * 5000 + " ☂ rain"
    tokenizer = train_tokenizer(_section(vocab_size=48), [long], ["short and sweet"])
    assert tokenizer.decode_target(tokenizer.encode_target(["☃ ☂"])) == ["☃ ☂"]
    parts = list(segments([long]))
    assert "".join(parts) == long
    assert max(map(len, parts)) <= SEGMENT_CHARS


def test_an_existing_tokenizer(small: Dataset, tmp_path: Path) -> None:
    assert existing_tokenizer(_section()) is None
    for path in (small.folder, small.folder / JOINT_FILE):
        found = existing_tokenizer(_section(path=str(path), kind="unigram", vocab_size=9))
        assert found is not None
        assert found.fingerprint == small.tokenizer.fingerprint
    train_tokenizer(_section(vocabulary="separate", tags=[">>fra<<"]), SOURCES, TARGETS).save(tmp_path)
    separate = existing_tokenizer(_section(path=str(tmp_path), tags=[">>fra<<"]))
    assert separate is not None
    assert not separate.is_joint
    with pytest.raises(UserError, match=r"prepare.tokenizer.tags: >>deu<< is no piece of .*\(>>fra<<\)"):
        existing_tokenizer(_section(path=str(tmp_path), tags=[">>fra<<", ">>deu<<"]))


def test_what_is_no_existing_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / SOURCE_FILE).write_bytes(b"x")
    cases = [
        ("nowhere", "no such file or folder"),
        ("empty", "files none"),
        ("half", "files tokenizer.source.model"),
        ("text", "is no SentencePiece model"),
    ]
    for name, message in cases:
        with pytest.raises(UserError, match=f"prepare.tokenizer.path: .*{name}: .*{message}"):
            existing_tokenizer(_section(path=str(tmp_path / name)))
