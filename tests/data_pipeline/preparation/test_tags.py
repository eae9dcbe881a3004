"""A language tag is no text: emptiness, lengths and ratios are those of what stands behind it."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import CleaningSection, PrepareSection, TokenizerSection
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import Corpus

INVISIBLE = [("\u200b", "x"), ("\ufeff", "y"), ("a cat", "\u200b")]
"""The tokenizer's normalisation leaves nothing of them."""
PAIRS = [(f"the cat number {n} sat", f"le chat numéro {n} assis") for n in range(100)]
LONG = [("a b c d e f g h i j k l", "a b c d e f g h i j k l"), ("c", "a b c d")]
TOKENIZER = TokenizerSection(vocab_size=64, threads=1, tags=[">>en<<", ">>fr<<"])
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "target tag": {"target_tag": ">>fr<<"},
    "both sides": {"tag_both_sides": True},
    "own": {},
}


def _section(corpus: Corpus, way: str, pairs: list[tuple[str, str]]) -> PrepareSection:
    given = [(f">>fr<< {s}", t) for s, t in pairs] if way == "own" else pairs
    return corpus(given, tokenizer=TOKENIZER, target_language="fr", **WAYS[way])


@pytest.mark.parametrize("way", WAYS)
def test_filters_do_not_count_tags(corpus: Corpus, tmp_path: Path, way: str) -> None:
    plain = dataclasses.replace(_section(corpus, "none", [*PAIRS, *LONG]), output=str(tmp_path / "plain"))
    prepare.run(plain)
    longest = int(Dataset.load(tmp_path / "plain").lengths.max())
    section = _section(corpus, way, [*PAIRS, *INVISIBLE, *LONG])
    cleaning, tokenizer = CleaningSection(max_length_ratio=1.9), TokenizerSection(path=plain.output)
    for number, (most, dropped) in enumerate([(longest, 0), (longest - 1, 1)]):
        output = str(tmp_path / str(number))
        changes = {"max_pieces": most, "cleaning": cleaning, "tokenizer": tokenizer}
        prepare.run(dataclasses.replace(section, output=output, **changes))  # type: ignore[arg-type]
        counts = Dataset.load(output).index.dropped
        assert counts == {"empty": 3, "too long": dropped, "length ratio": 1}
