"""A tokenizer is trained on an even sample of what the dataset will have; what it does not know is counted and said."""

import base64
import dataclasses
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CleaningSection, CorpusFiles, TokenizerSection, UserError
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation import prepare
from data_pipeline.preparation.corpus import RawSpan, corpus_units
from data_pipeline.preparation.report import inspect_dataset
from data_pipeline.preparation.spans import SpanEncoder
from data_pipeline.preparation.tokenizing import Sample, existing_tokenizer, train_tokenizer
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE, UNK_ID
from tests.data_pipeline.preparation.made import PAIRS, Corpus

Capture = pytest.CaptureFixture[str]

SOURCES = [f"{['the cat sat on a mat', 'quick brown foxes jump'][n % 2]} {n}" for n in range(300)]
TARGETS = [line.upper() for line in SOURCES]
[UNIT] = corpus_units(CorpusFiles(source=["a"], target=["b"]), ".")


def _section(**settings: Any) -> TokenizerSection:
    return TokenizerSection(**{"vocab_size": 64, "threads": 1, **settings})


def _span(first: int, sources: list[str], targets: list[str]) -> RawSpan:
    return RawSpan(UNIT, first + 1, [sources, targets])


@pytest.mark.parametrize("size", [1, 30, 299, 5000])
@pytest.mark.parametrize("max_bytes", [1, 500, 2000, 1 << 30])
def test_the_sample_has_the_smallest_keys(size: int, max_bytes: int) -> None:
    """In whatever order the spans come; of blank and too long lines it has none."""
    keys = np.concatenate([random_bits(52, size, Purpose.TOKENIZER_SAMPLE, number)[:50] for number in range(6)])
    wanted, room = [], max_bytes
    for row in np.argsort(keys).tolist()[:size]:
        room -= len(f"{SOURCES[row]}\n{TARGETS[row]}".encode())
        if room < 0:
            break
        wanted.append(row)
    sample = Sample(size, max_bytes, size, max_characters=50)
    for number in random.Random(size).sample(range(6), 6):
        rows = slice(50 * number, 50 * number + 50)
        sample.add(_span(50 * number, [*SOURCES[rows], " ", "x"], [*TARGETS[rows], "x", "y" * 51]), number)
    wanted.sort()
    assert sample.finish() == ([SOURCES[row] for row in wanted], [TARGETS[row] for row in wanted])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_same_sample_gives_the_same_bytes(kind: str) -> None:
    section = _section(kind=kind, threads=2, tags=[">>fra<<"])
    first, second = (train_tokenizer(section, SOURCES, TARGETS) for _ in range(2))
    assert first.files() == second.files()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_too_large_a_vocabulary_says_the_largest(kind: str) -> None:
    with pytest.raises(UserError, match=r"prepare.tokenizer.vocab_size: 9000 pieces .* at most \d+$") as caught:
        train_tokenizer(_section(kind=kind, vocab_size=9000), SOURCES, TARGETS)
    largest = int(re.findall(r"at most (\d+)", str(caught.value))[0])
    train_tokenizer(_section(kind=kind, vocab_size=largest), SOURCES, TARGETS)
    with pytest.raises(UserError, match=f"at most {largest}$"):
        train_tokenizer(_section(kind=kind, vocab_size=largest + 1), SOURCES, TARGETS)
    with pytest.raises(UserError, match=r"prepare.tokenizer.target_vocab_size: 9000 pieces"):
        train_tokenizer(
            _section(kind=kind, vocabulary="separate", vocab_size=40, target_vocab_size=9000), SOURCES, TARGETS
        )


def test_long_lines_are_not_lost() -> None:
    """SentencePiece leaves out a line of more than 4,192 bytes: its letters would become unknown."""
    long = "☃ snow " * 2000 + "x" * 5000 + " ☂ rain"
    tokenizer = train_tokenizer(_section(vocab_size=48), [long], ["short and sweet"])
    assert tokenizer.decode_target(tokenizer.encode_target(["☃ ☂"])) == ["☃ ☂"]


MARKS = ["</s>", "<unk>", "\u2585", "a\u2585b", "＜unk＞", "<\u200b/s>", ">>fra<<", "<<unk>unk>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("mark", MARKS)
def test_what_stands_beside_a_mark_is_known(mark: str, kind: str) -> None:
    """SentencePiece's trainer passes over sentences with its own marks in them."""
    pairs = [*PAIRS, (f"{mark} жук", f"щи {mark}")]
    section = _section(vocab_size=75 if kind == "bpe" else 56, kind=kind, tags=[">>fra<<"])
    tokenizer = train_tokenizer(section, [s for s, _ in pairs], [t for _, t in pairs])
    rows = tokenizer.encode_target(["жук", "щи", mark.replace("\u2585", "")])
    assert not [row for row in rows if UNK_ID in row]


def test_what_the_dataset_will_not_have_trains_nothing(corpus: Corpus, tmp_path: Path) -> None:
    """Lines of more than 16 characters for each piece that a pair may have, and copies that are dropped."""

    def prepared(name: str, pairs: list[tuple[str, str]], **settings: Any) -> Dataset:
        prepare.run(corpus([*PAIRS, *pairs], output=str(tmp_path / name), **settings))
        return Dataset.load(tmp_path / name)

    plain = prepared("plain", [])
    junk = base64.b64encode(random.Random(1).randbytes(30_000)).decode()
    with_junk = prepared("junk", [(junk, "Voir le fichier joint."), ("See what is attached.", junk)])
    assert with_junk.tokenizer_fingerprint == plain.tokenizer_fingerprint
    assert with_junk.index.dropped["too long"] == 2
    for most in (10, 9):
        tokenizer = prepared(f"{most}", [("☃" * 160, "neige")], max_pieces=most).tokenizer
        assert (tokenizer.decode_target(tokenizer.encode_target(["☃"])) == ["☃"]) == (most == 10)
    snow = [("☃☃☃ snow falls", "☃☃☃ la neige tombe")]
    once, kept = prepared("once", snow), prepared("kept", snow * 500)
    dropped = prepared("dropped", snow * 500, cleaning=CleaningSection(duplicates="drop"))
    assert dropped.tokenizer_fingerprint == once.tokenizer_fingerprint != kept.tokenizer_fingerprint


def test_an_existing_tokenizer(small: Dataset, tmp_path: Path) -> None:
    assert existing_tokenizer(_section()) is None
    for path in (small.folder, small.folder / JOINT_FILE):
        joint = existing_tokenizer(_section(path=str(path), kind="unigram", vocab_size=9))
        assert joint is not None
        assert joint.fingerprint == small.tokenizer.fingerprint
    train_tokenizer(_section(vocabulary="separate", tags=[">>fra<<"]), SOURCES, TARGETS).save(tmp_path)
    separate = existing_tokenizer(_section(path=str(tmp_path), tags=[">>fra<<"]))
    assert separate is not None
    assert not separate.is_joint
    with pytest.raises(UserError, match=r"prepare.tokenizer.tags: >>deu<< is not a piece of .*\(>>fra<<\)"):
        existing_tokenizer(_section(path=str(tmp_path), tags=[">>fra<<", ">>deu<<"]))
    (tmp_path / "text").write_text("no model")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / SOURCE_FILE).write_bytes(b"x")
    cases = [
        ("nowhere", "No such file or directory; allowed is a prepared dataset"),
        ("half", "files tokenizer.source.model"),
        ("text", "is not a SentencePiece model"),
    ]
    for name, message in cases:
        with pytest.raises(UserError, match=f"prepare.tokenizer.path: .*{name}: .*{message}"):
            existing_tokenizer(_section(path=str(tmp_path / name)))


def test_a_corpus_that_the_tokenizer_does_not_know(
    corpus: Corpus, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.run(corpus(PAIRS, output=str(tmp_path / "latin")))
    cyrillic = [(f"the cat number {n} sat", "кот сидит") for n in range(100)]
    section = corpus(cyrillic, tokenizer=TokenizerSection(path=str(tmp_path / "latin")))
    said = r"prepare.max_unknown: 0.1, and 200 of 400 \(50.00%\) target pieces are unknown to the tokenizer"
    with pytest.raises(UserError, match=said):
        prepare.run(section)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(SpanEncoder, "encode_span", None)  # it goes on from what is encoded
    prepare.run(dataclasses.replace(section, max_unknown=0.5))
    output = capsys.readouterr()
    assert "(0.00%) source pieces, 200 of 400 (50.00%) target pieces (<unk>)" in output.out
    assert any("200 of 400 (50.00%) target" in line for line in inspect_dataset(tmp_path / "out")[0])
