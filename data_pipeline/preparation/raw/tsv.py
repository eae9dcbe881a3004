"""TSV: source and target in two columns, or in columns that are chosen by number or by the name in the first line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from configs import CorpusFiles, UserError
from data_pipeline.preparation.raw.fields import listed
from data_pipeline.preparation.raw.lines import LineReader, decode_lines
from data_pipeline.preparation.raw.text import BYTE_ORDER_MARK, LineUnit
from data_pipeline.preparation.raw.unit import Languages

WITHOUT_HEADER = {"source": "1", "target": "2"}
"""The columns that the fields' defaults mean in a file whose first line is a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TsvUnit(LineUnit):
    """One file. A tab always separates columns; quotation marks are text."""

    columns: tuple[int, ...]
    """Numbers, from 0, of the columns of source, target and further texts."""
    only_columns: bool
    """Whether a line has no other columns."""

    @classmethod
    def of(cls, files: CorpusFiles, paths: tuple[Path, ...], extra: Mapping[str, str], languages: Languages) -> Self:
        """See `Unit.of`."""
        source_field, target_field = str(files.source_field), str(files.target_field)
        fields = (source_field, target_field, *extra.values())
        has_header = files.header or not all(field.isdecimal() or field in WITHOUT_HEADER for field in fields)
        names = _header(paths[0]) if has_header else None
        return cls(
            paths=paths,
            source_field=source_field,
            target_field=target_field,
            extra=extra,
            head_lines=int(has_header),
            columns=tuple(_column(paths[0], names, field) for field in fields),
            only_columns=fields == tuple(WITHOUT_HEADER) and not has_header,
        )

    def split(self, lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
        """See `LineUnit.split`."""
        rows, least = [line.split("\t") for line in lines[0]], max(self.columns) + 1
        for number, row in zip(numbers, rows, strict=True):
            if len(row) < least or (self.only_columns and len(row) > least):
                wanted = f"{least if self.only_columns else f'at least {least}'}, one tab between them"
                raise UserError(f"{self.paths[0]}: line {number} has {len(row)} columns; allowed is {wanted}")
        return [[row[column] for row in rows] for column in self.columns]


def _header(path: Path) -> list[str]:
    """The names of a file's columns."""
    [line] = decode_lines(path, LineReader(path).take(1).removeprefix(BYTE_ORDER_MARK), [1])
    return line.split("\t")


def _column(path: Path, names: list[str] | None, field: str) -> int:
    """The number, from 0, of a field's column; `names` are those of the header, if there is one."""
    if names is not None and field in names:
        if names.count(field) > 1:
            raise UserError(
                f"{path}: has {names.count(field)} columns {field}; give their numbers (source_field, target_field)"
            )
        return names.index(field)
    number = WITHOUT_HEADER.get(field, field) if names is None else field
    if number.isdecimal() and int(number):
        return int(number) - 1
    allowed = f"one of {listed(names)}, or a number from 1" if names is not None else "a number from 1"
    raise UserError(f"{path}: has no column {field}; allowed is {allowed} (source_field, target_field)")
