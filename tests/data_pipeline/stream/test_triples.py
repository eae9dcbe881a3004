"""Triples: prepared, stored and streamed as pairs are, and handed out as two rows of one micro-batch."""

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from configs import CorpusFiles, PrepareSection, StreamSection, TokenizerSection, UserError
from data_pipeline.preparation import prepare
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.triples import joined, longest_half
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader
from tests.data_pipeline.conftest import BUNDLED

NUM_TRIPLES = 200
Texts = tuple[str, str, str]


def written(path: Path, triples: list[Texts]) -> None:
    names = ("source", "chosen", "rejected")
    path.write_text("".join(f"{json.dumps(dict(zip(names, triple, strict=True)))}\n" for triple in triples))


def section_of(folder: Path, tokenizer: Path, name: str = "triples") -> PrepareSection:
    train = CorpusFiles(jsonl=[f"{name}.jsonl"], target_field="chosen", rejected_field="rejected")
    return PrepareSection(
        output=str(folder / name),
        root=str(folder),
        target_language="fr",
        train=train,
        tokenizer=TokenizerSection(path=str(tokenizer)),
        max_pieces=64,
        pairs_per_block=16,
        workers=1,
    )


@pytest.fixture(scope="module")
def triples(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, list[Texts]]:
    """Of each source its translation and that of another line; a dataset, and what is in it."""
    folder = tmp_path_factory.mktemp("triples")
    english, french = (
        gzip.decompress((BUNDLED / f"test.{language}.gz").read_bytes()).decode().splitlines()
        for language in ("en", "fr")
    )
    made = list(zip(english, french, french[7:], strict=False))[:NUM_TRIPLES]
    written(folder / "triples.jsonl", made)
    prepare.run(section_of(folder, small.folder))
    return Dataset.load(folder / "triples"), made


def epoch(dataset: Dataset, section: StreamSection, world_size: int) -> list[list[MicroBatch]]:
    """The micro-batches of each update, lane by lane."""
    readers = [
        StreamReader([(dataset, None)], section, seed=3, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    found = []
    while micro_batches := [m for reader in readers for m in reader.next_update() if m is not None]:
        found.append(sorted(micro_batches, key=lambda m: m.lane))
    for reader in readers:
        reader.close()
    return found


@pytest.mark.parametrize("multiple", [1, 8])
def test_each_triple_is_two_rows_within_the_budgets(
    triples: tuple[Dataset, list[Texts]], small: Dataset, multiple: int
) -> None:
    dataset, made = triples
    assert dataset.has_triples
    assert not small.has_triples
    assert (dataset.verify(), dataset.num_pairs) == ([], NUM_TRIPLES)
    section = StreamSection(
        micro_batches=3, source_tokens=256, target_tokens=192, max_rows=20, length_multiple=multiple
    )
    updates = epoch(dataset, section, 1)
    tokenizer, found = dataset.tokenizer, []
    for m in (m for update in updates for m in update):
        assert m.has_triples
        assert m.source.size <= 256
        assert m.target_output.size <= 192
        assert m.num_pairs == len(m.source) <= 20
        assert (m.pair_ids[::2] == m.pair_ids[1::2]).all()
        assert (m.source[::2] == m.source[1::2]).all()
        for given, wanted in zip(m.target_input, m.target_output, strict=True):
            *ids, end = wanted[wanted != 0].tolist()
            assert end == 2
            assert given[: len(ids) + 1].tolist() == [1, *ids]
            assert not given[len(ids) + 1 :].any()
        assert m.num_rejected_tokens == np.count_nonzero(m.target_output[1::2])
        sources, targets = tokenizer.decode_source(m.source.tolist()), tokenizer.decode_target(m.target_output.tolist())
        found += list(zip(sources[::2], targets[::2], targets[1::2], strict=True))
    as_spelt = [tuple(tokenizer.decode_target(tokenizer.encode_target(list(texts)))) for texts in made]
    assert sorted(found) == sorted(as_spelt)
    for one, two in zip(updates, epoch(dataset, section, 2), strict=True):
        assert [m.pair_ids.tolist() for m in one] == [m.pair_ids.tolist() for m in two]
        assert all((a.target_output == b.target_output).all() for a, b in zip(one, two, strict=True))


def test_what_is_stored() -> None:
    assert joined([5], [6, 7, 8]) == [5, 2, 2, 2, 6, 7, 8]
    assert joined([5, 6], [7]) == [5, 6, 2, 7, 2]
    assert [longest_half(len(joined([5] * one, [6] * two))) for one, two in ((1, 3), (2, 1), (4, 4))] == [4, 3, 5]


def test_filters_judge_both_translations(small: Dataset, tmp_path: Path) -> None:
    words = "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3
    made = [
        ("Hello.", "Bonjour.", "Salut."),
        ("Hello.", "Bonjour.", "Coucou."),
        ("Hello.", "Bonjour.", "Salut."),
        ("Good.", "Bien.", " "),
        ("Good.", "", "Bien."),
        ("Good.", "Bien.", words),
        ("Same.", "Bien.", "Same."),
    ]
    written(tmp_path / "x.jsonl", made)
    section = section_of(tmp_path, small.folder, "x")
    cleaning = dataclasses.replace(section.cleaning, duplicates="drop", identical="drop")
    prepare.run(dataclasses.replace(section, cleaning=cleaning))
    index = Dataset.load(tmp_path / "x").index
    assert index.pairs == 2
    assert {name: n for name, n in index.dropped.items() if n} == {
        "empty": 2, "identical": 1, "too long": 1, "duplicate": 1
    }  # fmt: skip
    with pytest.raises(UserError, match=r"x.jsonl: line 4: the target is empty"):
        prepare.run(dataclasses.replace(section, on_bad_pair="error", output=str(tmp_path / "y")))


def test_what_is_refused(triples: tuple[Dataset, list[Texts]], tmp_path: Path, small: Dataset) -> None:
    dataset, _ = triples
    section = StreamSection(micro_batches=1, source_tokens=12, target_tokens=400)
    with pytest.raises(UserError, match=r"stream\.source_tokens: pair \d+ of .* takes (\d+) tokens, \1 > 12"):
        StreamReader([(dataset, None)], section, seed=1, rank=0, world_size=1)
    [problem] = CorpusFiles(source=["a"], target=["b"], rejected_field="c").problems()
    assert problem.startswith("rejected_field: c: text in lines has no fields")
    written(tmp_path / "none.jsonl", [("a", "b", "")])
    with pytest.raises(UserError, match=r"prepare\.train\.rejected_field: rejected: .*none\.jsonl: line 1 and what fo"):
        prepare.run(section_of(tmp_path, small.folder, "none"))
    problems = list(dataclasses.replace(section_of(tmp_path, small.folder), max_pieces=40_000).problems())
    assert problems == ["max_pieces: 40000 with train.rejected_field; allowed is at most 32000"]
