"""Formats in which a line is a pair or one of its sides: parallel text, TSV and JSON lines."""

from collections.abc import Sequence

from typing_extensions import override

from configs import UserError
from configs.components import RawFiles, component
from configs.corpus import FieldPath
from configs.process.files.inside import parse_json
from data_pipeline.preparation.lines import (
    BYTE_ORDER_MARK,
    LineFormat,
    Split,
    byte_lines,
    checked,
    decode_lines,
    listed,
    texts_of,
)


@component("reader", "text")
class Text(LineFormat):
    """Two files, `source` and `target`: line N of one belongs to line N of the other."""

    @override
    def open(self, files: RawFiles) -> Split:
        return _sides


def _sides(lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
    return lines


@component("reader", "tsv")
class Tsv(LineFormat):
    """Columns separated by tabs. Quotation marks are text."""

    source_field: FieldPath = 1
    """Column of the source: its number, from 1, or its name in the first line."""
    target_field: FieldPath = 2
    """Column of the target."""

    @override
    def head_lines(self, files: RawFiles) -> int:
        return int(not all(field.isdecimal() for field in self._fields(files)))

    @override
    def open(self, files: RawFiles) -> Split:
        [path] = files.paths
        [first] = decode_lines(path, next(byte_lines(path)) + b"\n", [1])
        names = first.removeprefix(BYTE_ORDER_MARK).split("\t")
        columns = [self._column(field, names, files) for field in self._fields(files)]
        least, most = max(columns) + 1, 2 if len(names) == 2 else None

        def split(lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
            rows = [line.split("\t") for line in lines[0]]
            for number, row in zip(numbers, rows, strict=True):
                if len(row) < least or len(row) > (most or len(row)):
                    allowed = f"{most}, as in line 1" if most else f"at least {least}"
                    raise UserError(f"{path}: line {number} has {len(row)} columns; allowed is {allowed}")
            return [[row[column] for row in rows] for column in columns]

        return split

    def _fields(self, files: RawFiles) -> list[str]:
        return [str(self.source_field), str(self.target_field), *files.further]

    def _column(self, field: str, names: list[str], files: RawFiles) -> int:
        """The number, from 0, of a field's column."""
        if self.head_lines(files) and names.count(field) == 1:
            return names.index(field)
        if field.isdecimal() and int(field):
            return int(field) - 1
        raise UserError(
            f"{files.paths[0]}: has {names.count(field) or 'no'} columns {field}; allowed is a number from 1, or one "
            f"of {listed(names)} (source_field, target_field)"
        )


@component("reader", "jsonl")
class JsonLines(LineFormat):
    """A JSON object a line."""

    source_field: FieldPath = "source"
    """Key of the source. `translation.en` is the key of this name or, if there is none, the key `en` within
    `translation`."""
    target_field: FieldPath = "target"
    """Key of the target."""

    @override
    def open(self, files: RawFiles) -> Split:
        fields = [str(self.source_field), str(self.target_field), *files.further]

        def split(lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
            rows = [
                _row(line, fields, f"{files.paths[0]}: line {number}")
                for number, line in zip(numbers, lines[0], strict=True)
            ]
            return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in fields]

        return split


def _row(line: str, fields: list[str], where: str) -> list[str]:
    try:
        tree = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where}: is not JSON ({error}); allowed is one object a line") from error
    row = texts_of(tree, fields, where)
    return [checked(text, where) for text in row] if "\\" in line else row  # only escapes can write what is refused
