"""Documents made of tables: reports of runs and pipelines, model cards; and their one form in Markdown."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from configs.process.text import markdown, visible_name

Piece = tuple[str, bool]
"""Text, and whether it is marked."""
Cell = str | Sequence[Piece]
"""A cell of a table: a name or a figure; or a sentence in pieces, whose direction marks stay, marked ones in bold."""
_FIGURE = re.compile(
    r"-|none|[+-]?\d[\d.,]*( ± [\d.]+)?[%*]?",
)


class Code(str):
    """Text of a cell that is shown as code."""

    __slots__ = ()


@dataclass(kw_only=True, slots=True, frozen=True)
class Table:
    """Rows of cells below a title."""

    title: str = ""
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    """Lines below it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Part:
    """What belongs to one subject: a picture, a listing, tables."""

    title: str
    key: str = ""
    picture: tuple[str, str] | None = None
    """A file beside the document, and what it shows."""
    listing: tuple[str, str] | None = None
    """A language, such as `sh` or `mermaid`, and lines of it."""
    tables: Sequence[Table] = ()


def to_markdown(title: str, parts: Sequence[Part], *, notes: Sequence[str] = ()) -> str:
    """A document in GitHub's Markdown, in which text is text: no mark in it is markup.

    Args:
        title: its heading.
        parts: those without content are left out.
        notes: what stands before all of them.
    """
    lines = [f"# {markdown(visible_name(title))}", ""]
    for note in notes:
        lines += [f"> {_cell(note)}", ""]
    for part in parts:
        lines += _part(part)
    return "\n".join(lines).rstrip("\n") + "\n"


def _part(part: Part) -> Iterator[str]:
    if not (part.picture or part.listing or part.tables):
        return
    yield from (f"## {markdown(part.title)}", "")
    if part.picture is not None:
        file, shows = part.picture
        yield from (f"![{markdown(shows)}]({file})", "")
    if part.listing is not None:
        language, text = part.listing
        fence = "`" * max(3, _longest_run(text) + 1)
        yield from (f"{fence}{language}", text, fence, "")
    for table in part.tables:
        if table.title:
            yield from (f"### {markdown(visible_name(table.title))}", "")
        yield from table_lines(table)


def table_lines(table: Table) -> Iterator[str]:
    """The rows and notes of a table; columns of figures are aligned to the right."""
    if table.head:
        columns = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.head)
        figures = [number > 0 and bool(column) and _are_numbers(column) for number, column in enumerate(columns)]
        yield _row([_cell(head) for head in table.head])
        yield _row(["--:" if is_figure else "---" for is_figure in figures])
        yield from (_row([_cell(cell) for cell in row]) for row in table.rows)
        yield ""
    if table.notes:
        yield from (f"- {_cell(note)}" for note in table.notes)
        yield ""


def _are_numbers(cells: Sequence[Cell]) -> bool:
    """Whether a column holds figures, which are right-aligned."""
    return all(isinstance(cell, str) and _FIGURE.fullmatch(cell) for cell in cells)


def plain(value: float | None, digits: int) -> str:
    """A figure formatted for reading; a dash if there is none."""
    return "-" if value is None else f"{value:,.{digits}f}" if digits == 0 else f"{value:.{digits}f}"


def _cell(cell: Cell) -> str:
    if isinstance(cell, Code):
        return (
            f"<code>{markdown(visible_name(cell))}</code>" if cell else ""
        )  # no backticks: viewers differ on bars in them
    if isinstance(cell, str):
        return markdown(visible_name(cell))
    parts = []
    for text, is_marked in cell:
        inner = text.strip()
        if not is_marked or not inner:
            parts.append(markdown(text))
            continue
        begin = text[: len(text) - len(text.lstrip())]  # spaces stay outside the marks, which would not work otherwise
        parts.append(f"{begin}<b>{markdown(inner)}</b>{text[len(begin) + len(inner) :]}")
    return "".join(parts)


def _longest_run(text: str) -> int:
    """Of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
