"""A corpus as preparation reads it, in memory."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import zstandard

from configs import CorpusFiles
from data_pipeline.preparation.raw.corpus import corpus_units, read_spans
from data_pipeline.preparation.raw.unit import RawSpan, Span, Unit

Pairs = list[tuple[str, str]]
LANGUAGES = "en", "fr"
"""Of source and target."""

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def parts_of(files: CorpusFiles, folder: Path, size: int) -> list[tuple[Unit, Span, RawSpan]]:
    """Every span of a corpus, as preparation reads them."""
    found: list[tuple[Unit, Span, RawSpan]] = []
    for number, unit in enumerate(corpus_units(files, str(folder), languages=LANGUAGES)):
        found += [(unit, span, raw) for span, raw in unit.stream(number, len(found), size)]
    return found


def pairs_of(raw: RawSpan) -> Pairs:
    """The pairs of a span."""
    chunk = raw.pairs()
    return list(zip(chunk.sources, chunk.targets, strict=True))


def read(files: CorpusFiles, folder: Path, size: int = 3) -> Pairs:
    """The pairs of a corpus."""
    spans = read_spans(files, str(folder), size, LANGUAGES)
    return [pair for _, chunk in spans for pair in zip(chunk.sources, chunk.targets, strict=True)]
