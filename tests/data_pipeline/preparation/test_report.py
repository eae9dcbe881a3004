"""What each filter did is counted, with examples, however the corpus is cut; and said."""

import json
from pathlib import Path

import pytest

from configs import CleaningSection, TokenizerSection
from data_pipeline.preparation import corpus as corpora
from data_pipeline.preparation import prepare, spans
from data_pipeline.preparation.report import inspect_dataset
from tests.data_pipeline.preparation.made import PAIRS, Corpus

Patch = pytest.MonkeyPatch
ODD = [
    ("ﬁ", "fi"),  # equal once normalised
    ("", "x"),
    ("b c " * 60, "L"),  # too many pieces
    ("a\x07 cat", "a"),
    ("cat", "cat"),
    ("cat", "cat"),  # a duplicate
    ("\x07" + "x" * 999, "é\u200b" * 300),  # too many characters
    (" ", ""),
    ("\ufffd", "y"),  # nothing is left by the tokenizer
    ("", ""),
]
CLEANING = CleaningSection(
    normalization="nfkc", control_characters="remove", max_characters=300, max_length_ratio=50, duplicates="drop"
)


@pytest.mark.parametrize("sizes", [(65_536, 4096), (400, 7)])
def test_what_is_counted(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    monkeypatch.setattr(corpora, "SPAN_PAIRS", sizes[0])
    monkeypatch.setattr(spans, "CHUNK_LINES", sizes[1])
    pairs = [*PAIRS[:95], *ODD, *PAIRS[95:]]
    prepare.run(corpus(pairs, cleaning=CLEANING, max_pieces=100, tokenizer=TokenizerSection(vocab_size=80, threads=1)))
    tree = json.loads((tmp_path / "out" / "report.json").read_text())
    assert tree["read"] == 210
    dropped = {
        "normalization": 0,
        "control characters": 0,
        "empty": 4,
        "too many characters": 1,
        "too long": 1,
        "length ratio": 0,
        "duplicate": 1,
    }
    assert list(tree["dropped"].items()) == list(dropped.items())
    assert tree["changed"] == {"normalization": 1, "control characters": 2}
    where = {
        name: [example["where"] for example in examples] for name, examples in tree["examples"].items() if examples
    }
    assert where == {
        "empty": ["train.en: line 97", "train.en: line 103", "train.en: line 104"],
        "too many characters": ["train.en: line 102"],
        "too long": ["train.en: line 98"],
    }
    [example] = tree["examples"]["too many characters"]
    assert (example["source"], example["target"]) == ("\x07" + "x" * 199, "é\u200b" * 100), "as it was read, and short"
    lines, _ = inspect_dataset(tmp_path / "out")
    assert "pairs     203 kept of 210" in lines
    assert "          empty                         4       1.90%           0" in lines
    assert "          control characters            0       0.00%           2" in lines
