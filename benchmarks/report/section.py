"""A section of the page: text, tables and a plot. The text contains no figures; they come from result files."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.common.results import Result, Row
from benchmarks.report.plots import Draw
from benchmarks.report.tables import Choice, Table, column


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The section that answers one question."""

    title: str
    lead: str
    tables: tuple[Table, ...]
    plot: Draw | None = None
    """Draws the rows of the first table, or of `plot_of`."""
    plot_name: str = ""
    """Name of the plot's file, without extension."""
    plot_of: Choice | None = None
    """Rows of the plot, if not those of the first table."""
    if_empty: str = ""
    """Text if there is no result."""


def columns_of(key: str, by: str = "program", **equal: str) -> Callable[[Result], Row]:
    """A function from a result to one row with a column for each program, from the rows that match `equal`."""

    def row_of(result: Result) -> Row:
        rows = [row for row in result.rows if all(row.get(name) == value for name, value in equal.items())]
        return {row[by]: row[key] for row in rows if key in row}

    return row_of


MACHINE = column("machine", "processor")
