"""TSV: a pair a line, in columns that are chosen by number, or by the name in the first line."""

from collections.abc import Sequence

from typing_extensions import override

from configs import UserError
from configs.components import RawFiles, component
from configs.corpus import FieldPath
from data_pipeline.preparation.raw.fields import listed
from data_pipeline.preparation.raw.lines import BYTE_ORDER_MARK, LineFormat, Split, byte_lines, decode_lines


@component("reader", "tsv")
class Tsv(LineFormat):
    """Columns separated by tabs. Quotation marks are text."""

    source_field: FieldPath = 1
    """Column of the source: its number, from 1, or its name in the first line."""
    target_field: FieldPath = 2
    """Column of the target."""
    header: bool = False
    """Whether the first line has names, also where no column is chosen by its name."""

    @override
    def head_lines(self, files: RawFiles) -> int:
        return int(self.header or not all(field.isdecimal() for field in self._fields(files)))

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
