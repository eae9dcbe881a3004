"""TensorBoard shows texts letter by letter."""

from html.parser import HTMLParser

import numpy as np
from tensorboard.plugins.text.text_plugin import text_array_to_html

from trainer.records.names import html_table

TEXTS = (
    "<img src=x onerror=alert(1)>", "a | b", "**bold** _and_ `code`", "[link](http://x)", "# head", "1. one",
    "    four", "a\\|b", "&lt;b&gt; &amp;",
    "</td></tr></table><h1>", "<!-- -->", "```", "~~~", "> quote", "***", "- item", "http://x.y", "<http://x.y>",
    "![p](q)", "a\\*b", "\\", "'\"",
    "\x02wzxhzdk:0\x03", "]]>", "<script>x</script>", "[a]: http://x", "\u05d0\u05d1", "\u7c97 < \u4f53", "&#124;", "",
)  # fmt: skip


class Cells(HTMLParser):
    """The texts of a table's cells, and every element that there is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()
        self._is_in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self._is_in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell &= tag != "td"

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data


def test_text_is_shown_letter_by_letter() -> None:
    """By TensorBoard's own conversion to HTML."""
    rows = [(text, f"{text} and more", f"*before* {text}") for text in TEXTS]
    found = Cells(text_array_to_html(np.array(html_table(rows)), True))
    assert found.elements == {"table", "tbody", "tr", "td"}
    expected = [[text, f"{text} and more", f"*before* {text}"] for text in TEXTS]
    assert found.rows == [[cell.replace("\x02", "\\x02").replace("\x03", "\\x03") for cell in row] for row in expected]
