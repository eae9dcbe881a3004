"""A question of the page: what is said, the tables and the plot. Prose has no figures: they stand in results."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.common.results import Result, Row
from benchmarks.report.plots import Draw
from benchmarks.report.tables import Choice, Table, column


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question."""

    title: str
    lead: str
    tables: tuple[Table, ...]
    plot: Draw | None = None
    """Of the first table's rows."""
    plot_name: str = ""
    """Of its file, without the ending."""
    plot_of: Choice | None = None
    """Rows of the plot, where they are not the first table's."""
    otherwise: str = ""
    """What is said where there is no result."""


def columns_of(key: str, by: str = "program", **equal: str) -> Callable[[Result], Row]:
    """The row of a machine: a column for each program."""

    def row_of(result: Result) -> Row:
        rows = [row for row in result.rows if all(row.get(name) == value for name, value in equal.items())]
        return {row[by]: row[key] for row in rows if key in row}

    return row_of


MACHINE = column("machine", "processor")
