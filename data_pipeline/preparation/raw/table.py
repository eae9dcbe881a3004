"""Tables in Arrow's form, as `datasets` and pyarrow read them: their columns by field, and their rows as text.

Fields are found in trees, as those of JSON lines are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from data_pipeline.preparation.raw.fields import MISSING, find, further_text, listed, on_one_line, side_of, splits
from data_pipeline.preparation.raw.unit import Row, Unit

BATCH_ROWS = 4096
"""Rows that are read at a time."""
BROKEN = (OSError, ValueError, LookupError, TypeError)
"""Errors of `datasets` and pyarrow for files that are missing, truncated or altered."""


@dataclass(frozen=True, slots=True)
class Column:
    """Where a table has a field."""

    field: str
    name: str
    """Of the column."""
    rest: str | None
    """The field within a row of the column; None if the row itself is its value."""
    is_side: bool
    """Whether each row must have it, as a string."""


def columns_of(unit: Unit, schema: Any) -> list[Column]:
    """Where a table of a `pyarrow.Schema` has the fields of a unit.

    Raises:
        UserError: there is no such column.
    """
    tree = {column.name: _tree_of(column.type) for column in schema}
    return [_column(unit.paths[0], tree, field, is_side=number < 2) for number, field in enumerate(unit.fields)]


def rows_of(unit: Unit, columns: list[Column], table: Any, first_line: int) -> Iterator[Row]:
    """The rows of a `pyarrow.Table` or record batch.

    Raises:
        UserError: a row has no text.
        ValueError: it is broken.
    """
    names = sorted({column.name for column in columns})
    table = table.select(names)
    table.validate(full=True)  # Arrow's files are mapped as they are: a wrong offset in one would end this process
    read = {name: table.column(name).to_pylist() for name in names}
    yield from zip(*(_texts(unit.paths[0], read[column.name], column, first_line) for column in columns), strict=True)


def unreadable(path: Path, program: str, error: Exception) -> UserError:
    """The error for a file or folder that `datasets` or pyarrow does not read."""
    reason = " ".join(str(error).split())[:200]
    return UserError(f"{path}: cannot be read by {program}: {reason or type(error).__name__}")


def _tree_of(type_: Any) -> Any:
    """The names within a column's rows, as a tree; None if they have none."""
    from pyarrow import StructType

    if not isinstance(type_, StructType):
        return None
    return {inner.name: _tree_of(inner.type) for inner in type_}


def _column(path: Path, tree: dict[str, Any], field: str, *, is_side: bool) -> Column:
    there = [(key, rest) for key, rest in splits(field) if key in tree]
    if not there:
        name = field.partition(".")[0]
        raise UserError(f"{path}: has no column {name}; allowed is one of {listed(tree)} (source_field, target_field)")
    holding = (place for place in there if place[1] is None or find(tree[place[0]], place[1]) is not MISSING)
    return Column(field, *next(holding, there[0]), is_side)


def _texts(path: Path, values: list[Any], column: Column, first_line: int) -> list[str]:
    if column.rest is not None:
        values = [_inside(path, value, column.rest, column.field) for value in values]
    if not column.is_side:
        return [further_text(value) for value in values]
    for row, value in enumerate(values):
        if not isinstance(value, str):
            side_of(value, column.field, f"{path}: line {first_line + row}")
    return [on_one_line(value) for value in values]


def _inside(path: Path, value: Any, rest: str, field: str) -> Any:
    """The value of a field within a row; None if the row does not have it."""
    if value is None:
        return None
    if (inner := find(value, rest)) is MISSING:
        what = f"holds {listed(value)}" if isinstance(value, dict) else f"is a {type(value).__name__}"
        raise UserError(f"{path}: has no column {field}: what is before {rest} {what}; allowed is a column of text")
    return inner
