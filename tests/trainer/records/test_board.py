"""TensorBoard shows texts letter by letter."""

from xml.etree import ElementTree

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


def test_text_is_shown_letter_by_letter() -> None:
    """By TensorBoard's own conversion to HTML."""
    rows = [(text, f"{text} and more", f"*before* {text}") for text in TEXTS]
    page = ElementTree.fromstring(text_array_to_html(np.array(html_table(rows)), True))
    assert {element.tag for element in page.iter()} == {"table", "tbody", "tr", "td"}
    shown = [["".join(cell.itertext()) for cell in row] for row in page.iter("tr")]
    assert shown == [[cell.replace("\x02", "\\x02").replace("\x03", "\\x03") for cell in row] for row in rows]
