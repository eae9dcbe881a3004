"""What the tokenizer does not know is counted, said, and refused where it is too much; nothing else is lost to it."""

import dataclasses
import json
from pathlib import Path

import pytest

from configs import TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.report import inspect_dataset
from data_pipeline.preparation.spans import SpanEncoder
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import UNK_ID
from tests.data_pipeline.preparation.made import Corpus

Capture = pytest.CaptureFixture[str]

PAIRS = [(f"the cat number {n} sat", f"le chat numéro {n} assis") for n in range(200)]
CYRILLIC = [(f"the cat number {n} sat", "кот сидит") for n in range(100)]


@pytest.fixture
def latin(corpus: Corpus, tmp_path: Path) -> str:
    """The path of a tokenizer of Latin letters."""
    prepare.run(corpus(PAIRS, output=str(tmp_path / "latin")))
    return str(tmp_path / "latin")


def test_a_corpus_that_the_tokenizer_does_not_know(
    corpus: Corpus, latin: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = corpus(CYRILLIC, tokenizer=TokenizerSection(path=latin))
    said = r"prepare.max_unknown: 0.1, and 200 of 400 \(50.00%\) target pieces are unknown .* tokenizer than that of"
    with pytest.raises(UserError, match=said):
        prepare.run(section)
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(SpanEncoder, "encode_span", None)  # it goes on from what is encoded
    capsys.readouterr()
    prepare.run(dataclasses.replace(section, max_unknown=0.5))
    output = capsys.readouterr()
    assert "(0.00%) source pieces, 200 of 400 (50.00%) target pieces (<unk>)" in output.out
    assert "warning: prepare.train: 200 of 400 (50.00%) target pieces are unknown" in output.err
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (report["unknown"]["target"], report["pieces"]["target"]) == (200, 400)
    assert any("200 of 400 (50.00%) target" in line for line in inspect_dataset(tmp_path / "out")[0])


def test_few_are_a_warning(corpus: Corpus, tmp_path: Path, capsys: Capture) -> None:
    prepare.run(corpus(PAIRS, output=str(tmp_path / "none")))
    assert "warning" not in capsys.readouterr().err
    tokenizer = TokenizerSection(vocab_size=64, threads=1, character_coverage=0.99)
    prepare.run(corpus([*PAIRS, ("the cat", "é ж")], tokenizer=tokenizer))
    assert "zeromt: warning: prepare.train: " in capsys.readouterr().err


MARKS = ["</s>", "<s>", "<unk>", "<pad>", "\u2585", "a\u2585b", "＜unk＞", "<\u200b/s>", ">>fra<<", "<<unk>unk>"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("mark", MARKS)
def test_what_stands_beside_a_mark_is_known(mark: str, kind: str) -> None:
    """SentencePiece's trainer passes over sentences with its own marks in them."""
    pairs = [*PAIRS, (f"{mark} жук", f"щи {mark}")]
    size = 75 if kind == "bpe" else 56
    section = TokenizerSection(vocab_size=size, threads=1, kind=kind, tags=[">>fra<<"])  # type: ignore[arg-type]
    tokenizer = train_tokenizer(section, [s for s, _ in pairs], [t for _, t in pairs])
    rows = tokenizer.encode_target(["жук", "щи", mark.replace("\u2585", "")])
    assert not [row for row in rows if UNK_ID in row]


def test_unknown_tags_of_a_corpus_are_said(corpus: Corpus, tmp_path: Path, capsys: Capture) -> None:
    tags = [">>fra<<"] * 20 + [">>xyz<<"] * 10 + ["\ufeff>>fra<<"] + [" >>fra<<"] * 2
    pairs = [(f"{tag} {s}", t) for tag, (s, t) in zip(tags * 5, PAIRS, strict=False)]
    tokenizer = TokenizerSection(vocab_size=80, threads=1, tags=[">>fra<<"])
    prepare.run(corpus(pairs, tokenizer=tokenizer))
    said = capsys.readouterr().err
    assert "50 source lines begin with >>xyz<<, which is taken for text" in said
    assert "10 source lines begin with >>fra<<, which is taken for text" in said
    assert any("50 source lines begin with >>xyz<<" in line for line in inspect_dataset(tmp_path / "out")[0])
    dataset = Dataset.load(tmp_path / "out")
    first = dataset.tokenizer.tag_id(">>fra<<")
    blocks = [dataset.read_block(number) for number in range(len(dataset.blocks))]
    assert sum(int((block.source == first).sum()) for block in blocks) == 21 * 5
    prepare.run(corpus(pairs, tokenizer=tokenizer, target_tag=">>fra<<", output=str(tmp_path / "twice")))
    assert "115 source lines begin with >>fra<<, which is taken for text" in capsys.readouterr().err
