"""`prepare.record_places`: where each pair stands in the raw corpus."""

import dataclasses
from pathlib import Path
from typing import Literal

import pytest

from configs import CleaningSection, CorpusFiles
from data_pipeline.preparation import corpus as corpora
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.preparation.made import Corpus, many

PAIRS = many(300)


def texts(dataset: Dataset) -> list[tuple[str, str]]:
    """Every pair as text, by its number."""
    rows = [dataset.pieces(pair) for pair in range(dataset.num_pairs)]
    sources = dataset.tokenizer.decode_source([source for source, _ in rows])
    return list(zip(sources, dataset.tokenizer.decode_target([target for _, target in rows]), strict=True))


@pytest.mark.parametrize("duplicates", ["keep", "drop"])
def test_places_lead_to_the_raw_lines(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duplicates: Literal["keep", "drop"]
) -> None:
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 400)  # spans of 100
    lines = [("", "") if n % 17 == 3 else pair for n, pair in enumerate(PAIRS)]  # those are dropped
    section = corpus(lines, cleaning=CleaningSection(duplicates=duplicates), record_places=True, blocks_per_shard=2)
    prepare.run(section)
    dataset = Dataset.load(tmp_path / "out")
    found = texts(dataset)
    assert len(found) == dataset.num_pairs
    seen = []
    for pair, text in enumerate(found):
        name, line = str(dataset.place(pair)).split(":")
        assert (name, lines[int(line) - 1]) == (section.train.source[0], text)
        seen.append(int(line))
    assert len(set(seen)) == len(seen)
    assert dataset.verify() == []


def test_files_with_one_name_are_told_apart(corpus: Corpus, tmp_path: Path) -> None:
    section = corpus(PAIRS, record_places=True)
    names = [section.train.source[0], section.train.target[0]]
    other = tmp_path / "other"
    other.mkdir()
    for name in names:
        (other / name).write_bytes((Path(section.root) / name).read_bytes())
    files = CorpusFiles(source=[names[0], f"other/{names[0]}"], target=[names[1], f"other/{names[1]}"])
    prepare.run(dataclasses.replace(section, train=files))
    dataset = Dataset.load(tmp_path / "out")
    places = [str(dataset.place(pair)) for pair in range(dataset.num_pairs)]
    assert len(set(places)) == 2 * len(PAIRS)
    assert sum(place.endswith("(file 2)") for place in places) == len(PAIRS)
