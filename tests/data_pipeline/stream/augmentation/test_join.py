"""The modifier `join`: lines of one document as one pair, by an independent look at the raw file."""

import dataclasses
import json
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CorpusFiles, PrepareSection, StreamSection, UserError, load_run
from configs.components import make
from configs.data import DatasetSource
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augmentation.joining import with_lines_behind
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.modifiers.lines import Join
from tests.data_pipeline.stream.made import close, open_readers, read_epoch

PIECES = 60
SECTION = StreamSection(micro_batches=4, source_tokens=800, target_tokens=800, window_pairs=300)
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "one", "dog", "run", "after", "two", "red", "cars"]

Line = dict[str, Any]


def _lines(count: int) -> list[Line]:
    """Documents of one to twelve lines, each with its number in it; some lines in none, some that are dropped."""
    draws = random.Random(2)
    lines: list[Line] = []
    while len(lines) < count:
        name = None if draws.random() < 0.1 else f"d{len(lines)}"
        for _ in range(draws.randint(1, 12)):
            words = " ".join(draws.choices(WORDS, k=draws.randint(1, 5)))
            number = len(lines)
            dropped = draws.random() < 0.05
            lines.append({"source": f"{number} {words}", "target": "" if dropped else f"{words} {number}", "doc": name})
    return lines[:count]


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    """12,000 of them."""
    return _lines(12_000)


@pytest.fixture(scope="module")
def documents(lines: list[Line], small_section: PrepareSection, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Their dataset."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    section = dataclasses.replace(
        small_section,
        output=str(folder / "out"),
        root=str(folder),
        train=CorpusFiles(jsonl=["a.jsonl"], document_field="doc"),
        valid=CorpusFiles(),
        tokenizer=dataclasses.replace(small_section.tokenizer, byte_fallback=True, vocab_size=400),
        record_places=True,
    )
    prepare.run(section)
    return Dataset.load(folder / "out")


def _join(**fields: Any) -> StreamSection:
    return dataclasses.replace(SECTION, augment=[make("modifier", "join", **{"pieces": PIECES, **fields})])


def _epoch(datasets: Sequence[Dataset], section: StreamSection, ranks: int = 1) -> list[MicroBatch]:
    readers = open_readers(datasets, section, ranks)
    found = read_epoch(readers)
    close(readers)
    return found


def _texts(dataset: Dataset, batches: Sequence[MicroBatch]) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    for m in batches:
        decoders = dataset.tokenizer.decode_source, dataset.tokenizer.decode_target
        sides = (decode(rows.tolist()) for decode, rows in zip(decoders, (m.source, m.target_output), strict=True))
        found |= dict(zip(m.pair_ids.tolist(), zip(*sides, strict=True), strict=True))
    return found


def test_ten_thousand_joins_by_the_raw_file(documents: Dataset, lines: list[Line]) -> None:
    """Whole lines, from the pair's on, of one document, none left out; every number that there is room for."""
    texts: dict[int, Counter[tuple[str, str]]] = {}
    readers = open_readers([documents], _join(probability=0.5))
    joins = 0
    counts = Counter[int]()
    for _ in range(3):
        for pair, (source, target) in _texts(documents, read_epoch(readers)).items():
            first = int(str(documents.place(pair)).split(":")[1]) - 1
            numbers = [int(word) for word in source.split() if word.isdecimal()]
            assert numbers == list(range(first, first + len(numbers)))
            own = lines[first : first + len(numbers)]
            assert source == " ".join(line["source"] for line in own)
            assert target == " ".join(line["target"] for line in own)
            assert all(line["target"] for line in own), "dropped lines end it"
            if len(own) > 1:
                assert {line["doc"] for line in own} == {own[0]["doc"]} != {None}
                joins += 1
            counts[len(own)] += 1
            texts.setdefault(pair, Counter())[source, target] += 1
    assert readers[0].num_augmented == joins > 10_000
    assert readers[0].num_fell_back == 0
    close(readers)
    assert set(range(1, 6)) <= set(counts)
    assert sum(len(c) > 1 for c in texts.values()) > 5000, "passes differ"


def test_as_many_lines_as_there_is_room_for(documents: Dataset) -> None:
    """Each number is drawn as often; at probability 1 those alone stay plain that have no line behind them."""
    batches = _epoch([documents], _join(probability=1.0, pieces=30))
    lengths = documents.lengths.astype(int)
    wanted = Counter[int]()
    found = Counter[int]()
    for m in batches:
        for pair, source in zip(m.pair_ids.tolist(), documents.tokenizer.decode_source(m.source.tolist()), strict=True):
            most = 1
            while most <= documents.documents[pair] and lengths[pair : pair + most + 1].sum(axis=0).max() <= 30:
                most += 1
            number = _numbers(source)
            assert (number == 1) if most == 1 else (2 <= number <= most)
            if most == 4:
                found[number] += 1
            wanted[most] += 1
        assert max(m.source.shape[1], m.target_output.shape[1]) <= 31
    assert min(wanted[n] for n in range(1, 5)) > 100
    assert all(abs(found[n] - wanted[4] / 3) < 5 * np.sqrt(wanted[4]) for n in (2, 3, 4))


def _rows(batches: Sequence[MicroBatch]) -> list[tuple[int, list[int], list[int]]]:
    return [
        (m.lane, m.pair_ids.tolist(), [*m.source.reshape(-1).tolist(), *m.target_output.reshape(-1).tolist()])
        for m in batches
    ]


@pytest.mark.parametrize("changes", [{"window_pairs": 2000, "workers": 1}, {"micro_batches": 48}])
def test_the_same_on_any_ranks_and_whatever_is_in_the_window(documents: Dataset, changes: dict[str, Any]) -> None:
    """Shards or blocks are dealt to the lanes, or single pairs."""
    section = dataclasses.replace(_join(probability=0.5), **changes)
    wanted = _epoch([documents], dataclasses.replace(section, workers=0))
    for ranks in (2, 3):
        assert _rows(_epoch([documents], section, ranks)) == _rows(wanted)
    assert _texts(documents, wanted) == _texts(documents, _epoch([documents], _join(probability=0.5)))


def test_others_draw_what_they_drew(documents: Dataset) -> None:
    """Behind a join that never joins, to the bit; before one, the same pairs."""
    upper = make("modifier", "upper_case", probability=0.3)
    plain = _epoch([documents], dataclasses.replace(SECTION, augment=[upper]))
    after = dataclasses.replace(SECTION, augment=[upper, make("modifier", "join", probability=0.3, pieces=2)])
    assert _rows(_epoch([documents], after)) == _rows(plain)
    both = _texts(documents, _epoch([documents], dataclasses.replace(after, augment=[upper, *_join().augment])))
    capitals = {pair: source for pair, (source, _) in _texts(documents, plain).items() if source.isupper()}
    assert len(capitals) > 500
    assert all(both[pair][0].startswith(source) for pair, source in capitals.items())


def test_only_the_datasets_that_are_named(documents: Dataset) -> None:
    """One of a mixture."""
    sources = [DatasetSource(path="a"), DatasetSource(path="b")]
    section = dataclasses.replace(_join(probability=0.5, datasets=["a"]), datasets=sources)
    wanted = _epoch([documents, documents], section)
    joined = {m.dataset for m in wanted for text in _texts(documents, [m]).values() if _numbers(text[0]) > 1}
    assert joined == {0}
    assert _rows(_epoch([documents, documents], section, 3)) == _rows(wanted)


def test_lines_that_cannot_be_read_are_not_joined(documents: Dataset, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(documents.folder, tmp_path / "copied"))
    row = documents.blocks[20]
    shard = folder / documents.index.shards[int(row["shard"])].file
    content = bytearray(shard.read_bytes())
    content[int(row["offset"]) + 600] ^= 1
    shard.write_bytes(content)
    first, last = int(row["first_pair"]), int(row["first_pair"] + row["pairs"])
    dataset = Dataset.load(folder)
    section = dataclasses.replace(_join(probability=1.0), max_corrupt_blocks=1)
    texts = _texts(dataset, _epoch([dataset], section))
    assert sorted(texts) == [pair for pair in range(dataset.num_pairs) if not first <= pair < last]
    whole = _texts(documents, _epoch([documents], _join(probability=1.0)))
    for pair, (source, _) in texts.items():
        cut = " ".join(source.split()) if pair + _numbers(whole[pair][0]) <= first or pair >= last else None
        assert cut is None or source == whole[pair][0]
        assert pair >= last or pair + _numbers(source) <= first


def test_a_dataset_without_documents_is_refused_by_name(small: Dataset) -> None:
    with pytest.raises(UserError, match=r"stream\.augment\.0: join: .*small has no documents; prepare it with"):
        open_readers([small], _join())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["stream.augment=[{kind: join, pieces: 64}]", "model.max_positions=64", "prepare.max_pieces=60"],
         r"stream\.augment: join makes pairs of 64 pieces and EOS, .* its pieces to at most 63"),
        (["stream.augment=[{kind: join}, {kind: join}]"], r"stream\.augment\.0: join is there twice for one dataset"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_at_the_start(given: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_run("debug", given)


def test_a_script_without_spaces() -> None:
    lines = [("我去。", "I go."), ("你来！", "You come!"), ("好", "Good")]
    assert Join().join(lines) == ("我去。你来！好", "I go. You come! Good")


def test_lines_behind_pairs_are_read_once() -> None:
    pairs = np.array([3, 3, 4, 9, 20])
    assert with_lines_behind(pairs, np.array([0, 2, 3, 0, 1])).tolist() == [3, 4, 5, 6, 7, 9, 20, 21]
    assert with_lines_behind(pairs, np.zeros(5, dtype=int)).tolist() == [3, 4, 9, 20]


def _numbers(text: str) -> int:
    return sum(word.isdecimal() for word in text.split())
