"""`prepare.train.document_field`: lines of a document stay one after the other, and the dataset says where."""

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs import CorpusFiles, PrepareSection, UserError, load_run
from data_pipeline.errors import DataError
from data_pipeline.preparation import prepare
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.raw import corpus as corpora
from data_pipeline.preparation.writing import documents
from data_pipeline.prepared.dataset import Dataset
from tests.conftest import contents
from tests.data_pipeline.preparation.made import PAIRS, Corpus

Line = dict[str, Any]


def _lines(count: int) -> list[Line]:
    """Documents of one to 400 lines; of some lines no id, of some no target; ids that come again."""
    draws = random.Random(1)
    lines: list[Line] = []
    while len(lines) < count:
        name = draws.choice([None, "", *range(1500), "a b", "é"])
        for _ in range(400 if draws.random() < 0.01 else draws.randint(1, 12)):
            number = len(lines)
            lines.append({"source": f"the cat {number} sat", "target": f"le chat {number} assis", "doc": name})
            if draws.random() < 0.05:
                lines[-1]["target"] = ""
    return lines[:count]


def _behind(lines: list[Line]) -> list[int]:
    """Of each kept line, how many of the next lines are kept and of the same document: by looking."""
    found = []
    for number, line in enumerate(lines):
        if line["target"]:
            count = 0
            for other in lines[number + 1 : number + 256]:
                if line["doc"] in (None, "") or other["doc"] != line["doc"] or not other["target"]:
                    break
                count += 1
            found.append(count)
    return found


@pytest.fixture
def in_documents(corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PrepareSection, list[Line]]:
    """6,000 lines of JSON in spans of 250, and some six shards."""
    monkeypatch.setattr(corpora, "SPAN_PAIRS", 1000)
    lines = _lines(6000)
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = CorpusFiles(jsonl=["train.jsonl"], document_field="doc")
    return corpus([], train=files, pairs_per_block=16, blocks_per_shard=64, record_places=True), lines


def _by_line(dataset: Dataset) -> dict[int, int]:
    """The row of each line, by its number from 0."""
    return {int(str(dataset.place(row)).split(":")[1]) - 1: row for row in range(dataset.num_pairs)}


def test_neighbours_are_told_and_stand_one_after_the_other(in_documents: tuple[PrepareSection, list[Line]]) -> None:
    section, lines = in_documents
    prepare.run(section)
    dataset = Dataset.load(section.output)
    rows = _by_line(dataset)
    kept = [number for number, line in enumerate(lines) if line["target"]]
    assert sorted(rows) == kept
    assert dataset.documents.dtype == np.uint8
    assert [int(dataset.documents[rows[number]]) for number in kept] == _behind(lines)
    assert max(_behind(lines)) > 20
    for number, count in zip(kept, _behind(lines), strict=True):
        assert all(rows[number + n] == rows[number] + n for n in range(count + 1))
    assert dataset.verify() == []
    assert len(dataset.index.shards) > 4
    fewest, most = min(s.pairs for s in dataset.index.shards), max(s.pairs for s in dataset.index.shards)
    assert 300 < fewest < most < 3000
    order = sorted(kept, key=rows.__getitem__)
    steps = np.diff(order)
    assert 0.4 < np.mean(steps[np.abs(steps) > 100] > 0) < 0.6, "documents are shuffled"


def test_parts_and_processes_give_the_same_bytes(
    in_documents: tuple[PrepareSection, list[Line]], tmp_path: Path
) -> None:
    section = dataclasses.replace(in_documents[0], record_places=False)
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "whole")))
    wanted = contents(tmp_path / "whole")
    assert "documents.npy" in wanted
    assert "places.npy" not in wanted
    for number in (3, 1, 2):
        prepare.run(section, part=Part(number, 3))
    prepare.run(section, merge=True)
    assert contents(tmp_path / "out") == wanted
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "two"), workers=2))
    assert contents(tmp_path / "two") == wanted


def test_a_field_that_is_the_same_in_all_lines_is_cut(
    in_documents: tuple[PrepareSection, list[Line]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_LINES", 500)
    section, lines = in_documents
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({**line, "doc": "x"}) + "\n" for line in lines))
    prepare.run(section)
    dataset = Dataset.load(section.output)
    assert max(shard.pairs for shard in dataset.index.shards) < 3000
    rows = _by_line(dataset)
    assert all(dataset.documents[rows[n]] == 0 for n in range(498, 6000, 500) if n in rows)


def test_of_tsv(corpus: Corpus, tmp_path: Path) -> None:
    rows = [f"{s}\t{t}\t{n // 3}\n" for n, (s, t) in enumerate(PAIRS)]
    (tmp_path / "a.tsv").write_text("".join(rows))
    prepare.run(corpus(PAIRS, train=CorpusFiles(tsv=["a.tsv"], document_field=3), record_places=True))
    dataset = Dataset.load(tmp_path / "out")
    lines = _by_line(dataset)
    assert [int(dataset.documents[lines[n]]) for n in range(200)] == [2, 1, 0] * 66 + [1, 0]


def test_without_them_nothing_is_written(corpus: Corpus, tmp_path: Path) -> None:
    prepare.run(corpus(PAIRS))
    assert Dataset.load(tmp_path / "out").index.documents is None
    assert not (tmp_path / "out" / "documents.npy").exists()
    assert b"document" not in (tmp_path / "out" / "index.json").read_bytes()


def test_no_line_that_is_followed_is_said(corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{s}\t{t}\t{n}\n" for n, (s, t) in enumerate(PAIRS)))
    prepare.run(corpus(PAIRS, train=CorpusFiles(tsv=["a.tsv"], document_field=3)))
    said = "0 pairs are followed by the next line of theirs\n    none is: look at prepare.train.document_field"
    assert said in capsys.readouterr().out


def test_a_table_that_was_changed_is_found(in_documents: tuple[PrepareSection, list[Line]]) -> None:
    section, _ = in_documents
    prepare.run(section)
    path = Path(section.output) / "documents.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"documents\.npy"):
        Dataset.load(section.output)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["prepare.train={source: [a], target: [b], document_field: doc}"],
         "prepare.train.document_field: doc: parallel text has no fields"),
        (["prepare.train={tsv: [a], document_field: 3}", "prepare.cleaning.duplicates=drop"],
         "prepare.train.document_field: given with cleaning.duplicates=drop"),
        (["prepare.train={tsv: [a]}", "prepare.valid={tsv: [a], document_field: 3}"],
         "prepare.valid.document_field: documents of a held-out set are not used"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(given: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said.replace(".", r"\.")):
        load_run("debug", given)
