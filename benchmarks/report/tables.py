"""Tables of the page, and the choice of results for them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common.results import Result, Row

Results = Sequence[Result]
Choice = Callable[[Results], tuple[list[Result], list[Row]]]
"""Chooses the results for a table, and returns them with the table's rows."""

NAMES = {
    "eole": "Eole",
    "joeynmt": "JoeyNMT",
    "transformers": "Transformers",
    "transformers bf16": "Transformers bf16",
    "ctranslate2": "CTranslate2",
    "ctranslate2 int8": "CTranslate2 int8",
    "plain loop": "plain loop fp32",
    "plain": "all logits at once",
    "chunked": "in chunks",
}
"""Names on the page for programs that have another name in the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    key: str
    """Key of the rows."""
    header: str
    form: str = ",.0f"
    """Format specification of its numbers."""


def column(key: str, header: str, form: str = ",.0f") -> Column:
    """Make a column."""
    return Column(key=key, header=header, form=form)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page."""

    choice: Choice
    columns: tuple[Column, ...]
    lead: str = ""
    """A sentence before the table, without figures."""


def newest(question: str, part: str | None = None, *, needs: Iterable[str] = ()) -> Choice:
    """Chooses the newest result that has a row of this part with all columns of `needs`."""
    needed = set(needs)

    def choose(results: Results) -> tuple[list[Result], list[Row]]:
        for result in reversed(results):
            rows = result.part(part) if part else result.rows
            if result.question == question and any(needed <= set(row) for row in rows):
                return [result], rows
        return [], []

    return choose


def on_each_machine(question: str, row_of: Callable[[Result], Row]) -> Choice:
    """A row for each machine, from its newest result with a non-empty row; newest first."""

    def choose(results: Results) -> tuple[list[Result], list[Row]]:
        found: dict[str, tuple[Result, Row]] = {}
        for result in reversed(results):
            if result.question == question and result.machine not in found and (row := row_of(result)):
                found[result.machine] = result, {"machine": result.machine, **row}
        return [result for result, _ in found.values()], [row for _, row in found.values()]

    return choose


def pivoted(choice: Choice, *, over: str, by: str, keys: Iterable[str]) -> Choice:
    """Merges rows with equal `by`: each key becomes a column `KEY of VALUE` for each value of `over`."""

    def choose(results: Results) -> tuple[list[Result], list[Row]]:
        chosen, rows = choice(results)
        found: dict[str, Row] = {}
        for row in rows:
            target = found.setdefault(row[by], {by: row[by]})
            target |= {f"{key} of {row[over]}" if key in keys else key: value for key, value in row.items()}
        return chosen, list(found.values())

    return choose


def text(cell: Any, form: str) -> str:
    """A cell as text: for several rounds the median, the lowest and the highest."""
    match cell:
        case None:
            return ""
        case str():
            return NAMES.get(cell, cell)
        case [middle, low, high]:
            return f"{middle:{form}} ({low:{form}} to {high:{form}})"
        case _:
            return f"{cell:{form}}"


def markdown(table: Table, chosen: Results, rows: Sequence[Row]) -> str:
    """A Markdown table without empty columns, in which estimated columns are marked."""
    shown = [c for c in table.columns if any(row.get(c.key) is not None for row in rows)]
    estimated = {key for result in chosen for key in result.estimated}
    headers = [c.header + (" (estimated)" if c.key.partition(" of ")[0] in estimated else "") for c in shown]
    lines = [headers, ["---"] * len(shown), *([text(row.get(c.key), c.form) for c in shown] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
