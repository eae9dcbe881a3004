"""TensorBoard's files of a run: texts letter by letter, and each step once."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.plugins.text.text_plugin import text_array_to_html

from configs.components import make
from trainer.records.metrics import Metrics
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


def test_each_step_once_after_any_starts(tmp_path: Path) -> None:
    """As TensorBoard reads it: what earlier starts had of steps that were made again is gone, in every plugin."""
    config = {"optimizer": {"lr": 1e-3}, "evaluation": {}}
    for resumed, last, sign in ((0, 20, 1), (0, 20, 2), (10, 25, 3), (5, 20, 4), (5, 20, 5)):
        trackers = [make("tracker", "tensorboard")]
        metrics = Metrics(tmp_path, resume_step=resumed, trackers=trackers, config=config)
        metrics.event(resumed, {"event": "begun", "with": sign})
        for step in range(resumed + 1, last + 1):
            metrics.train(step, {"loss": sign * step})
            if step % 5 == 0:
                metrics.evaluation(step, {"bleu": float(sign)}, [("a", "b", "c")])
        metrics.close()
    board = EventAccumulator(str(tmp_path), tensor_size_guidance={"scalars": 0, "text": 0})
    board.Reload()
    losses = [float(event.tensor_proto.float_val[0]) for event in board.Tensors("train/loss")]
    assert losses == [2 * step if step <= 5 else 5 * step for step in range(1, 21)]
    assert [event.step for event in board.Tensors("valid/translations/text_summary")] == [5, 10, 15, 20]
    for tag in board.Tags()["tensors"]:
        steps = [event.step for event in board.Tensors(tag)]
        assert steps == sorted(set(steps)), tag
