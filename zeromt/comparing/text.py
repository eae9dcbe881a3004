"""A comparison for a terminal, and as Markdown."""

from collections.abc import Iterator, Sequence

from configs.process.document import Cell, Part, Table, are_numbers, text_of, to_markdown
from configs.process.text import visible, visible_name
from zeromt.comparing.comparison import Comparison
from zeromt.comparing.sentences import METRIC, Sentence, Translated
from zeromt.comparing.tables import to_parts

MOST_CHARACTERS = 300
"""Characters shown of a sentence in a terminal, and of a cell."""


def to_terminal(comparison: Comparison) -> str:
    """Lines of text, in which differences between sentences are in brackets."""
    lines: list[str] = [f"note: {visible_name(note)}" for note in comparison.notes]
    for part in to_parts(comparison):
        lines += ["", part.title.upper()]
        for table in part.tables:
            lines += _lines(table)
    if any(one.sentences for one in comparison.sets):
        lines += ["", f"SENTENCES THAT DIFFER MOST, by {METRIC}"]
    for one in comparison.sets:
        for sentence in one.sentences:
            lines += ["", *_sentence(sentence, [run.label for run in comparison.runs])]
    return "\n".join(lines).strip("\n")


def _lines(table: Table) -> Iterator[str]:
    yield ""
    if table.title:
        yield visible_name(table.title)
    cells = [
        [_cut(visible_name(text_of(cell))) for cell in row]
        for row in ([table.head] if table.head else []) + list(table.rows)
    ]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    of_numbers = [number > 0 and are_numbers(column[1:]) for number, column in enumerate(columns)]
    for row in cells:
        padded = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, of_numbers, strict=True)
        ]
        yield f"  {'  '.join(padded)}".rstrip()
    for note in table.notes:
        yield f"  {visible_name(note)}"


def _sentence(sentence: Sentence, labels: Sequence[str]) -> Iterator[str]:
    width = max(map(len, (*labels, "reference")))
    yield f"  {sentence.set}, line {sentence.number}"
    yield f"  {'source'.ljust(width)}         {_cut(visible(sentence.source))}"
    for reference in sentence.references:
        yield f"  {'reference'.ljust(width)}         {_cut(visible(reference))}"
    for label, run in zip(labels, sentence.runs, strict=True):
        yield f"  {visible_name(label).ljust(width)}  {run.score:5.1f}  {_cut(visible(_bracketed(run)))}"


def _bracketed(run: Translated) -> str:
    return "".join(f"[{text}]" if differs else text for text, differs in run.pieces)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def as_markdown(comparison: Comparison) -> str:
    """GitHub's Markdown, in which differences between sentences are bold."""
    labels = [run.label for run in comparison.runs]
    sentences = Part(
        title=f"Sentences that differ most, by {METRIC}",
        tables=[_table(sentence, labels) for one in comparison.sets for sentence in one.sentences],
    )
    title = f"{'Report of' if len(labels) == 1 else 'Comparison of'} {', '.join(labels)}"
    return to_markdown(title, [*to_parts(comparison), sentences], notes=comparison.notes)


def _table(sentence: Sentence, labels: Sequence[str]) -> Table:
    rows: list[Sequence[Cell]] = [("source", "", [(sentence.source, False)])]
    rows += [("reference", "", [(reference, False)]) for reference in sentence.references]
    rows += [(label, f"{run.score:.1f}", run.pieces) for label, run in zip(labels, sentence.runs, strict=True)]
    return Table(title=f"{sentence.set}, line {sentence.number}", head=("", METRIC, "text"), rows=rows)
