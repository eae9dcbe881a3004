"""`prepare.record_places`: where each pair stands in the raw corpus."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from configs import CleaningSection
from data_pipeline.preparation import corpus as corpora
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import Corpus, many

PAIRS = many(300)


def texts(dataset: Dataset) -> list[tuple[str, str]]:
    """Every pair as text, by its number."""
    rows: tuple[list[list[int]], list[list[int]]] = ([], [])
    for block in map(dataset.read_block, range(len(dataset.blocks))):
        for side, pieces in enumerate((block.source, block.target)):
            cuts = np.cumsum(block.lengths[:-1, side], dtype=np.int64)
            rows[side].extend(row.tolist() for row in np.split(pieces, cuts))
    tokenizer = dataset.tokenizer
    return list(zip(tokenizer.decode_source(rows[0]), tokenizer.decode_target(rows[1]), strict=True))


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
def test_places_lead_to_the_raw_lines(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duplicates: Literal["keep", "drop"]
) -> None:
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 400)  # spans of 100
    lines = [("", "") if n % 17 == 3 else pair for n, pair in enumerate(PAIRS)]  # those are dropped
    section = corpus(lines, cleaning=CleaningSection(duplicates=duplicates), record_places=True, blocks_per_shard=2)
    prepare.run(section)
    dataset = Dataset.load(tmp_path / "out")
    kept = texts(dataset)
    assert len(kept) == dataset.num_pairs
    seen = []
    for pair, text in enumerate(kept):
        name, line = str(dataset.place(pair)).split(":")
        assert (name, lines[int(line) - 1]) == (section.train.source[0], text)
        seen.append(int(line))
    assert len(set(seen)) == len(seen)
    assert dataset.verify() == []
