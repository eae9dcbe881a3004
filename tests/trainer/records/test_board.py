"""TensorBoard's file of a run: texts letter by letter, and each step once, whatever the clock says."""

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEvents
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.plugins.text.text_plugin import text_array_to_html

from configs import EvaluationSection
from configs.components import ScoredText, make
from configs.reading.variables import saved_fields
from trainer.evaluation.outcome import Evaluation
from trainer.metrics.scoring import Scorer
from trainer.records.board import Board, table
from trainer.records.metrics import RunMetrics
from trainer.records.names import by_tag
from trainer.runs.layout import BOARD
from trainer.trackers import dashboard

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
        self._is_in_cell = tag in ("td", "th")
        if self._is_in_cell:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data


@pytest.mark.parametrize("with_markdown", [True, False])
def test_text_is_shown_letter_by_letter(with_markdown: bool) -> None:
    """By TensorBoard's own conversion to HTML."""
    rows = [(text, f"{text} and more", f"*before* {text}") for text in TEXTS]
    page = text_array_to_html(np.array(table(("source", "reference", "translation"), rows)), with_markdown)
    found = Cells(page)
    assert found.elements == {"table", "thead", "tbody", "tr", "td", "th"}
    shown = [tuple(cell.replace("\x02", "\\x02").replace("\x03", "\\x03") for cell in row) for row in rows]
    assert [tuple(row) for row in found.rows] == [("source", "reference", "translation"), *shown]


def test_what_nobody_sees_is_shown_as_python_writes_it() -> None:
    page = text_array_to_html(np.array(table(("a",), [("x\ny\u2028z\n\nw\r\x1b[0m\ud800",)])), True)
    assert Cells(page).rows[1] == ["x\\ny\\u2028z\\n\\nw\\r\\x1b[0m\\ud800"]


def _write(folder: Path, steps: range, *, resume_step: int, now: float, sign: float = 1.0) -> None:
    board = Board(folder, resume_step=resume_step, clock=lambda: now)
    board.table_once_per_run("run/configuration", ("field", "value"), [("resumed", str(resume_step))])
    end = board.hyperparameters({"lr": 1e-3, "kind": "adamw"}, {"train/loss": "loss"})
    for step in steps:
        board.scalars(step, {"train/loss": sign * step, "train/|<b>": 1.0})
        board.scalars(step, {"by_target_tokens/train/loss": sign * step}, x=1_000_003 * step)
        if step % 5 == 0:
            board.table(step, "valid/translations", ("source",), [(f"{sign:g}",)])
            board.image(step, "valid/attention_1", np.zeros((4, 4), np.uint8))
    end("finished")
    board.close()


def _check(folder: Path, steps: int, signs: dict[int, float]) -> None:
    """Every step once and in order at times that do not go back, by both of TensorBoard's readers."""
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "images": 0})
    board.Reload()
    assert set(board.Tags()["scalars"]) == {"train/loss", "train/|<b>", "by_target_tokens/train/loss"}
    by_tokens = [(1_000_003 * s, signs.get(s, 1.0) * s) for s in range(1, steps + 1)]
    assert [(e.step, e.value) for e in board.Scalars("by_target_tokens/train/loss")] == by_tokens
    found = board.Scalars("train/loss")
    assert [(e.step, e.value) for e in found] == [(s, signs.get(s, 1.0) * s) for s in range(1, steps + 1)]
    times = [e.wall_time for e in found]
    assert times == sorted(times)
    for events in (board.Tensors("valid/translations/text_summary"), board.Images("valid/attention_1")):
        assert [e.step for e in events] == list(range(5, steps + 1, 5))
    plugin = PluginEvents(str(folder), size_guidance={"tensors": 0}, tensor_size_guidance={"scalars": 0})
    plugin.Reload()
    if "run/configuration/text_summary" in plugin.Tags()["tensors"]:
        assert len(plugin.Tensors("run/configuration/text_summary")) == 1, (
            "what stands once, as the last start wrote it"
        )
    assert [e.step for e in plugin.Tensors("train/loss")] == list(range(1, steps + 1))


@pytest.mark.parametrize("later", [2000.0, 1000.0, 10.0], ids=["goes on", "stands", "is set back"])
def test_each_step_once_whatever_the_clock_says(tmp_path: Path, later: float) -> None:
    _write(tmp_path, range(1, 21), resume_step=0, now=1000.0)
    _write(tmp_path, range(11, 26), resume_step=10, now=later, sign=-1.0)
    _check(tmp_path, 25, dict.fromkeys(range(11, 26), -1.0))
    _write(tmp_path, range(6, 21), resume_step=5, now=later / 2, sign=2.0)
    _check(tmp_path, 20, dict.fromkeys(range(6, 21), 2.0))
    assert sorted(path.stat().st_size > 0 for path in tmp_path.iterdir()) == [False, True]


def test_steps_that_were_lost_are_gone_at_once(tmp_path: Path) -> None:
    """Also those of a tag that is not written again."""
    _write(tmp_path, range(1, 21), resume_step=0, now=1000.0)
    Board(tmp_path, resume_step=10, clock=lambda: 500.0).close()
    _check(tmp_path, 10, {})


def test_tensorboard_that_is_watching(tmp_path: Path) -> None:
    _write(tmp_path, range(1, 21), resume_step=0, now=1000.0)
    board = PluginEvents(str(tmp_path), tensor_size_guidance={"scalars": 0})
    board.Reload()
    _write(tmp_path, range(11, 16), resume_step=10, now=10.0, sign=-1.0)
    board.Reload()
    assert [e.step for e in board.Tensors("train/loss")] == list(range(1, 16))


def test_files_of_earlier_versions_and_of_killed_runs(tmp_path: Path) -> None:
    """Several files that overlap, the last of them cut off in the middle of a record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.utils.tensorboard import SummaryWriter
    for first, last in ((1, 12), (8, 15)):
        writer = SummaryWriter(str(tmp_path), purge_step=first)
        for step in range(first, last + 1):
            writer.add_scalar("train/loss", step, step)
            writer.add_scalar("train/|<b>", 1, step)
        writer.close()
    newest = max(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-5])
    (tmp_path / f"{BOARD}0000000001.x").write_bytes(b"\x05" + bytes(11) + b"\xff" * 9)
    _write(tmp_path, range(15, 18), resume_step=14, now=1000.0)
    board = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    board.Reload()
    for tag in ("train/loss", "train/|<b>"):
        assert [e.step for e in board.Scalars(tag)] == list(range(1, 18))


def test_marks_are_bold_and_texts_are_texts() -> None:
    row = [[("<b> & ", False), ("*x*", True), ("\n", False)]]
    page = text_array_to_html(np.array(table(("a",), [row])), True)
    assert "&lt;b&gt; &amp; <strong>*x*</strong>\\n" in page


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("finished", "SUCCESS"), ("stopped", "UNKNOWN"), ("failed", "FAILURE"), ("refused", "FAILURE")],
)
def test_hparams_say_how_the_run_ended(outcome: str, status: str, tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path, trackers=[make("tracker", "tensorboard")], resume_step=0)
    metrics.close(outcome, "a reason")
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    content = board.SummaryMetadata("_hparams_/session_end_info").plugin_data.content
    assert Status.Name(HParamsPluginData.FromString(content).session_end_info.status) == f"STATUS_{status}"
    assert "events/end/text_summary" in board.Tags()["tensors"]


def test_each_metric_has_a_chart_with_a_curve() -> None:
    """Charts, columns and second axes are named by the figures that evaluations have, as `chrfpp` of chrF++."""
    metrics = [
        make("metric", "bleu"), make("metric", "chrf"), make("metric", "chrf", word_order=2),
        make("metric", "ter", name="edits"), make("metric", "length_ratio"),
    ]  # fmt: skip
    lines = ["Il pleut.", "Il neige ce soir."]
    scores = Scorer(metrics, ScoredText(target_language="fr")).score(lines, lines, [lines])
    found = Evaluation(loss=1, nll=1, scores=scores, sources=lines, references=lines, hypotheses=lines, seconds=1)
    tags = by_tag("valid", found.figures())
    config = {"evaluation": saved_fields(EvaluationSection(metrics=metrics))}
    names = dashboard.metric_titles(config)
    assert list(names) == ["bleu", "chrf", "chrfpp", "edits", "length_ratio"]
    assert all(f"valid/{name}" in tags for name in names)
    charts = dashboard.layout(config)["2 quality"]
    for name, title in names.items():
        assert any(re.match(pattern, tag) for pattern in charts[title] for tag in tags), name


def test_the_table_of_hyperparameters_names_the_sets_that_scores_are_of() -> None:
    one: dict[str, Any] = {"prepare": {"output": "data/en-fr"}, "optimizer": {"lr": 0.1}}
    two = {**one, "stream": {"datasets": [{"path": "data/en-fr"}, {"path": "data/fr-en"}]}}
    sets = [{"name": "news", "role": "validation"}, {"name": "final", "role": "test"}]
    named = {**two, "evaluation": {"sets": sets}}
    found = [dashboard.hyperparameters(config) for config in (one, two, named)]
    [column] = {name for values in found for name in values if name.endswith("validation sets")}
    assert [values[column] for values in found] == ["en-fr", "en-fr, fr-en", "news"]
    assert max(found[0]) == column, "it is the last"
