"""Files of every format, and a corpus as preparation reads it, in memory."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
import zstandard

from configs import CorpusFiles
from configs.load import parse_run
from data_pipeline.preparation.corpus import RawSpan, Span, Unit, corpus_units

Pairs = list[tuple[str, str]]
LANGUAGES = "en", "fr"
"""Of source and target."""

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}
NESTED = {"source_field": "translation.en", "target_field": "translation.de"}


def named(names: list[str], kind: str, **fields: Any) -> CorpusFiles:
    """The section that names files and their reader."""
    return parse_run({"prepare": {"train": {"files": names, "reader": {"kind": kind, **fields}}}}).prepare.train


def write(folder: Path, form: str, pairs: Pairs, suffix: str = "") -> CorpusFiles:
    """Writes pairs in a format: text, tsv, jsonl, tmx, parquet, arrow, stream or huggingface."""
    name = f"{form}{suffix}"
    rows = [{"id": 1, "translation": {"en": source, "de": target}} for source, target in pairs]
    texts = {
        "tsv": "".join(f"{source}\t{target}\n" for source, target in pairs),
        "jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
        "tmx": "<tmx><body>"
        + "".join(
            f"<tu><tuv lang='FR'><seg>{escape(t)}</seg></tuv><tuv lang='en'><seg>{escape(s)}</seg></tuv></tu>"
            for s, t in pairs
        )
        + "</body></tmx>",
    }
    if form == "text":
        for side, number in (("source", 0), ("target", 1)):
            text = "".join(f"{pair[number]}\n" for pair in pairs)
            (folder / f"{side}{suffix}").write_bytes(PACKERS[suffix](text.encode()))
        return CorpusFiles(source=[f"source{suffix}"], target=[f"target{suffix}"])
    if form in texts:
        (folder / name).write_bytes(PACKERS[suffix](texts[form].encode()))
        return named([name], form, **(NESTED if form == "jsonl" else {}))
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(rows)
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, folder / name, row_group_size=7)
    elif form == "arrow":
        pytest.importorskip("pyarrow.feather").write_feather(table, str(folder / name), chunksize=9)
    elif form == "stream":
        with pyarrow.ipc.new_stream(folder / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    else:
        dataset = pytest.importorskip("datasets").Dataset(table)
        dataset.select(range(len(pairs))).save_to_disk(str(folder / name), num_shards=min(3, len(pairs)))
    return named([name], "table", **NESTED)


def spans_of(files: CorpusFiles, folder: Path, size: int) -> list[tuple[Unit, Span, RawSpan]]:
    """Every span of a corpus, as preparation reads them."""
    spans: list[tuple[Unit, Span, RawSpan]] = []
    for number, unit in enumerate(corpus_units(files, str(folder), languages=LANGUAGES)):
        spans += [(unit, span, raw) for span, raw in unit.stream(number, len(spans), size)]
    return spans


def pairs_of(raw: RawSpan) -> Pairs:
    """The pairs of a span."""
    chunk = raw.pairs()
    return list(zip(chunk.sources, chunk.targets, strict=True))


def read(files: CorpusFiles, folder: Path, size: int = 3) -> Pairs:
    """The pairs of a corpus."""
    return [pair for _, _, raw in spans_of(files, folder, size) for pair in pairs_of(raw)]
