"""Reads a parallel corpus of any format: its units, and all its pairs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from configs import CorpusFiles, UserError
from configs.components import RawFiles
from configs.data import UNDETERMINED
from configs.process.progress import say
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.raw.unit import Span, Unit

SPAN_PAIRS = 65_536
CHUNK_LINES = 4096
MAX_SET_LINES = 1 << 21
MAX_SET_CHARACTERS = 1 << 28
"""The same for both sides together. A set for evaluation is held in memory; it has some thousands of lines."""

Languages = tuple[str, str]
"""Codes of the languages of source and target."""
NO_LANGUAGES = (UNDETERMINED, UNDETERMINED)


def corpus_units(
    files: CorpusFiles, root: str, extra: Mapping[str, str] | None = None, languages: Languages = NO_LANGUAGES
) -> list[Unit]:
    """The units of a corpus, in order.

    Args:
        files: names them.
        root: folder that their paths are relative to.
        extra: further fields of each pair, by the names that they get in `TextChunk.extra`.
        languages: those wanted of files that have several.
    """
    extra, (source, target) = extra or {}, languages
    return [
        Unit(
            reader=files.reader,
            files=RawFiles(
                paths=tuple(Path(root) / name for name in names),
                further=tuple(extra.values()),
                source_language=source,
                target_language=target,
            ),
            extra=tuple(extra),
        )
        for names in files.units
    ]


def read_spans(
    files: CorpusFiles, root: str, size: int, languages: Languages = NO_LANGUAGES
) -> Iterator[tuple[Span, TextChunk]]:
    """All pairs of a corpus in spans of `size` lines; a unit's last span may be shorter.

    Raises:
        UserError: as for `Unit.stream` and `RawSpan.pairs`.
    """
    for number, unit in enumerate(corpus_units(files, root, languages=languages)):
        for span, raw in unit.stream(number, 0, size):
            yield span, raw.pairs()


def read_whole(files: CorpusFiles, root: str, languages: Languages = NO_LANGUAGES) -> tuple[list[str], list[str]]:
    """Sources and targets of a corpus, such as a test set, in memory. Says what of its files makes no pair.

    Raises:
        UserError: as for `read_spans`, or it is too large for memory.
    """
    sources: list[str] = []
    targets: list[str] = []
    left_out = Counter[str]()
    size = 0
    for span, chunk in read_spans(files, root, CHUNK_LINES, languages):
        sources += chunk.sources
        targets += chunk.targets
        left_out.update({f"{chunk.source_file}: left out {reason}": n for reason, n in span.left_out.items()})
        size += sum(map(len, chunk.sources)) + sum(map(len, chunk.targets))
        if len(sources) > MAX_SET_LINES or size > MAX_SET_CHARACTERS:
            most = f"{MAX_SET_LINES:,} lines or {MAX_SET_CHARACTERS:,} characters"
            raise UserError(f"{chunk.source_file}: has more than {most}, which are held in memory; take a part of it")
    for what, count in left_out.items():
        say(f"{what}: {count:,}")
    return sources, targets
