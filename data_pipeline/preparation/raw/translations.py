"""One side of a corpus beside what `zeromt translate --merge` made of it: each line is held against the side file.

The side file has the number of each translation's line and a hash of the text that was translated, so a translation
beside another line is an error. A hole has no text and is dropped, and counted, as any empty pair.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from configs import CorpusFiles, UserError
from data_pipeline.preparation.raw.lines import LineReader, side_file
from data_pipeline.preparation.raw.monolingual import reader_of
from data_pipeline.preparation.raw.unit import Languages, Row, RowUnit

_BYTE_ORDER_MARK = "\ufeff"


def hash_of(line: str) -> str:
    """The hash of a line that was translated."""
    return hashlib.sha256(line.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationsUnit(RowUnit):
    """The files that were translated, then the translations."""

    is_source_translated: bool
    """Whether the files are the source side, and the translations the target."""

    @classmethod
    def of(cls, files: CorpusFiles, paths: tuple[Path, ...], extra: Mapping[str, str], languages: Languages) -> Self:
        """See `Unit.of`. The side file, which is a path of the corpus too, is found by the translations' name."""
        return cls(paths=paths[:-1], extra=extra, is_source_translated=bool(files.source))

    @property
    def is_seekable(self) -> bool:
        """Never: a line is found by reading all before it."""
        return False

    def rows(self, first: int) -> Iterator[Row]:
        """See `RowUnit.rows`.

        Raises:
            UserError: a translation is of another line, or there are more or fewer.
        """
        assert first == 0
        *originals, translations = self.paths
        there = _numbered(originals)
        translated = LineReader(translations).lines()
        number, text, where = 0, "", ""
        for record in _records(side_file(translations)):
            if record["line"] == number + 1:  # else it is a further candidate
                number, (text, where) = number + 1, next(there, ("", ""))
                if not where:
                    raise UserError(f"{originals[-1]}: ends before line {number} of the text that was translated")
            if record["line"] != number or record["source"] != hash_of(text):
                raise UserError(
                    f"{where}: is not the line whose translation is line {number} of {translations}; give the text "
                    "that was translated"
                )
            if (translation := next(translated, None)) is None:
                raise UserError(f"{translations}: ends before the translation of {where}; merge again")
            yield (text, translation) if self.is_source_translated else (translation, text)
        for _, where in there:
            raise UserError(f"{where}: has no translation in {translations}; give the text that was translated")
        for _ in translated:
            raise UserError(f"{translations}: has more lines than {side_file(translations).name} beside it")


def _numbered(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """The lines of some files, each with its place."""
    for path in paths:
        for number, line in enumerate(reader_of(path).lines(), start=1):
            yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line, f"{path}: line {number}"


def _records(side: Path) -> Iterator[dict[str, Any]]:
    """What the side file says of each translation; the heads of chunks, which have no line, are passed over."""
    for line in LineReader(side).lines():
        try:
            tree = json.loads(line)
            if "source" in tree:
                yield {"line": int(tree["line"]), "source": str(tree["source"])}
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{side}: is no side file of `zeromt translate --merge`; merge again") from error
