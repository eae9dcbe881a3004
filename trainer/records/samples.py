"""Sample translations as a table of HTML, and differences between two texts."""

import difflib
import html
import re
from collections.abc import Sequence

from configs.components import Samples
from configs.process.text import visible

Piece = tuple[str, bool]
"""Text, and whether it is marked."""
Cell = str | Sequence[Piece]
"""A cell of a table: a name or a figure; or a sentence in pieces, whose direction marks stay, marked ones in bold."""
_TOKEN = re.compile(r"[^\W\u2e80-\ud7ff]+|\W|\w")
"""A word, or one character: of Chinese, Japanese or Korean, or one that is not part of a word."""


def marked(reference: str, text: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces; what the other lacks is marked."""
    one, other = _TOKEN.findall(reference), _TOKEN.findall(text)
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        pieces[0].append(("".join(one[a:b]), kind != "equal"))
        pieces[1].append(("".join(other[c:d]), kind != "equal"))
    return pieces


def samples_table(samples: Samples) -> str:
    """Sources beside references and translations, whose differences are bold."""
    rows = [(source, *marked(reference, text)) for source, reference, text in samples]
    return html_table([("source", "reference", "translation"), *rows])


def html_table(rows: Sequence[Sequence[Cell]]) -> str:
    """A table in which text is displayed literally, also by TensorBoard, which takes it for Markdown.

    Control characters and line separators, which would be invisible, become Python's escape sequences.
    """

    def shown(cell: Cell) -> str:
        pieces = [(cell, False)] if isinstance(cell, str) else cell
        texts = ((html.escape(visible(text)), is_marked) for text, is_marked in pieces)
        return "".join(f"<strong>{text}</strong>" if text and is_marked else text for text, is_marked in texts)

    lines = ("".join(f"<td>{shown(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
