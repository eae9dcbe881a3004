"""TSV with chosen columns, against the module `csv`."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, UserError
from configs.load import parse_run
from data_pipeline.preparation.raw.corpus import corpus_units
from tests.data_pipeline.preparation.raw.reading import PACKERS, pairs_of, parts_of, read

HEAD = ["id", "target", "score", "en text", "source"]
ROWS = [[f"{n}", f"ziel {n}", f"{n / 7:.3f}" * (n % 3 > 0), f'"quelle {n}', f"source ü{n}"] for n in range(11)]
CHOICES: list[tuple[dict[str, Any], bool, tuple[int, int]]] = [
    ({"source_field": 5, "target_field": "2"}, False, (4, 1)),
    ({"source_field": 4}, False, (3, 1)),
    ({"source_field": "en text"}, True, (3, 1)),
    ({"header": True}, True, (4, 1)),
    ({"header": True, "source_field": 1, "target_field": 4}, True, (0, 3)),
    ({"source_field": "en text", "target_field": 1}, True, (3, 0)),
]


@pytest.mark.parametrize(("fields", "has_header", "columns"), CHOICES)
@pytest.mark.parametrize(("suffix", "start", "end"), [("", "", "\n"), ("", "\ufeff", "\r\n"), (".gz", "\ufeff", "\n")])
def test_chosen_columns(
    tmp_path: Path,
    fields: dict[str, Any],
    has_header: bool,
    columns: tuple[int, int],
    suffix: str,
    start: str,
    end: str,
) -> None:
    text = start + end.join("\t".join(row) for row in [HEAD, *ROWS][not has_header :])
    (tmp_path / f"a.tsv{suffix}").write_bytes(PACKERS[suffix](text.encode()))
    lines = text.removeprefix("\ufeff").splitlines()
    rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[has_header:]
    files = parse_run({"prepare": {"train": {"tsv": [f"a.tsv{suffix}"], **fields}}}).prepare.train
    for size in (3, 50):
        found = parts_of(files, tmp_path, size)
        assert [p for _, _, raw in found for p in pairs_of(raw)] == [tuple(row[n] for n in columns) for row in rows]
        assert found[0][1].first_line == 1 + has_header
        assert all(unit.read(span) == raw for unit, span, raw in found if unit.is_seekable)
    chunk = found[0][2].pairs()
    assert chunk.where(0).endswith(f"line {1 + has_header}")


def test_further_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in [HEAD, *ROWS]))
    for extra, has_header in (({"qe": "score", "number": "1"}, True), ({"qe": "3", "number": "1"}, False)):
        [unit] = corpus_units(CorpusFiles(tsv=["a.tsv"]), str(tmp_path), extra)
        [(_, raw)] = unit.stream(0, 0, 100)
        rows = ROWS if has_header else [HEAD, *ROWS]
        assert raw.pairs().extra == {"qe": [row[2] for row in rows], "number": [row[0] for row in rows]}
        assert raw.pairs().sources == [row[4 if has_header else 0] for row in rows]


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("a\tb\nc\td\n", {"source_field": "x"}, "has no column x"),
    ("a\tb\nc\td\n", {"source_field": "a"}, "has no column target"),
    ("a\tb\ta\nc\td\te\n", {"source_field": "a"}, "has 2 columns a"),
    ("a\tb\nc\td\n", {"source_field": "0"}, "has no column 0"),
    ("a\tb\nc\td\n", {"header": True}, "has no column source"),
    ("a\tb\tc\n\td\n", {"source_field": 3}, "line 2 has 2 columns"),
    ("source\ttarget\n", {"header": True}, "is empty but for its header"),
    ("", {"header": True}, "is empty"),
]


@pytest.mark.parametrize(("text", "fields", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults(tmp_path: Path, text: str, fields: dict[str, Any], message: str) -> None:
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(UserError, match=rf"a\.tsv: {re.escape(message)}"):
        read(CorpusFiles(tsv=["a.tsv"], **fields), tmp_path)
