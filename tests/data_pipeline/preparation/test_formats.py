"""The same pairs give the same dataset in formats that are read from the beginning, in one run and in parts."""

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

from configs import CorpusFiles, PrepareSection
from data_pipeline.preparation import prepare
from data_pipeline.preparation.prepare import Part
from data_pipeline.preparation.readers.table import Table
from data_pipeline.preparation.readers.tmx import Tmx
from tests.data_pipeline.preparation.made import many

PAIRS = many(3000)
ALONE = "<tu><tuv xml:lang='en'><seg>alone</seg></tuv></tu>"


def tmx(folder: Path) -> CorpusFiles:
    """Every seventh unit lacks a side."""
    units = [
        f"<tu><tuv xml:lang='fr-FR'><seg>{escape(t)}</seg></tuv><tuv xml:lang='en'><seg>{escape(s)}</seg></tuv></tu>"
        + ALONE * (n % 7 == 0)
        for n, (s, t) in enumerate(PAIRS)
    ]
    (folder / "a.tmx").write_text(f"<tmx><body>{''.join(units)}</body></tmx>")
    return CorpusFiles(files=["a.tmx"], reader=Tmx())


def parquet(folder: Path) -> CorpusFiles:
    """Row groups that are no spans."""
    pyarrow = pytest.importorskip("pyarrow.parquet")
    rows = [{"translation": {"en": s, "fr": t}} for s, t in PAIRS]
    table = importlib.import_module("pyarrow").Table.from_pylist(rows)
    pyarrow.write_table(table, folder / "a.parquet", row_group_size=333)
    return CorpusFiles(files=["a.parquet"], reader=Table(source_field="translation.en", target_field="translation.fr"))


def shards(folder: Path) -> dict[str, bytes]:
    """The pairs of a dataset, and its tokenizer: all but what names the files of the corpus."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".tar", ".npy", ".model")}


@pytest.mark.parametrize("write", [tmx, parquet])
def test_they_give_the_same_dataset(
    in_spans: PrepareSection, tmp_path: Path, write: Callable[[Path], CorpusFiles]
) -> None:
    section = dataclasses.replace(in_spans, target_language="fr")
    prepare.run(dataclasses.replace(section, output=str(tmp_path / "of_text")))
    wanted = shards(tmp_path / "of_text")
    assert len(wanted) > 4
    section = dataclasses.replace(section, train=write(tmp_path))
    prepare.run(section)
    assert shards(tmp_path / "out") == wanted
    in_parts = dataclasses.replace(section, output=str(tmp_path / "in_parts"))
    for number in (2, 3, 1):
        prepare.run(in_parts, part=Part(number, 3))
    prepare.run(in_parts, merge=True)
    assert shards(tmp_path / "in_parts") == wanted
    reports: list[dict[str, Any]] = [
        json.loads((tmp_path / name / "report.json").read_bytes()) for name in ("out", "in_parts")
    ]
    assert reports[0] == reports[1]
    assert reports[0].get("left_out", {}) == ({"units without fr": 429} if write is tmx else {})
