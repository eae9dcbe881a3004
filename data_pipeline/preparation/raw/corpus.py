"""Reads a parallel corpus of any format: its units, and all its pairs."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from configs import CorpusFiles, UserError
from configs.components import RawFiles
from configs.data import UNDETERMINED
from configs.process.progress import say
from data_pipeline.preparation.raw.unit import Unit

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


def read_whole(files: CorpusFiles, root: str, languages: Languages = NO_LANGUAGES) -> tuple[list[str], list[str]]:
    """Sources and targets of a corpus, such as a test set, in memory. Says what of its files makes no pair.

    Raises:
        UserError: as for `Unit.stream`, or it is too large for memory.
    """
    sources: list[str] = []
    targets: list[str] = []
    size = 0
    for unit in corpus_units(files, root, languages=languages):
        left_out = Counter[str]()
        for span, raw in unit.stream(0, 0, CHUNK_LINES):
            chunk = raw.pairs()
            sources += chunk.sources
            targets += chunk.targets
            left_out.update(span.left_out)
            size += sum(map(len, chunk.sources)) + sum(map(len, chunk.targets))
            if len(sources) > MAX_SET_LINES or size > MAX_SET_CHARACTERS:
                most = f"{MAX_SET_LINES:,} lines or {MAX_SET_CHARACTERS:,} characters"
                raise UserError(f"{chunk.source_file}: has more than {most}, which are held in memory; take a part")
        for reason, count in left_out.items():
            say(f"{unit.files.paths[0]}: left out {reason}: {count:,}")
    return sources, targets
