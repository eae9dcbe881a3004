"""The report: what results of every kind say, from a pipeline whose steps take no time."""

import json
import shutil
from pathlib import Path

import pytest

from tests.small import small_runs
from tests.zeromt.pipeline.conftest import run, write
from zeromt.pipeline.report import mermaid


@pytest.fixture
def text(folder: Path) -> str:
    """The report on a dataset, a score and a translated corpus."""
    shutil.copytree(small_runs() / "dataset", folder / "dataset")
    (folder / "made").mkdir()
    runs = [{"score": 30.0, "interval": 1.5, "difference": None, "difference_interval": None}]
    runs.append({"score": 31.0, "interval": 1.25, "difference": 1.0, "difference_interval": 0.5})
    compared = {
        "runs": [{"label": "a"}, {"label": "b"}],
        "sets": [{"name": "test", "scores": [{"label": "BLEU", "runs": runs}]}],
    }
    (folder / "compared.json").write_text(json.dumps(compared))
    scores = {"sets": {"news<b>": {"bleu": 31.25, "bleu_signature": "tok:13a", "pairs": 40, "checkpoint": "x"}}}
    (folder / "scores.json").write_text(json.dumps(scores))
    (folder / "made/translations.txt").write_text("une <i>ligne</i>\n")
    (folder / "made/translations.merged.json").write_text(json.dumps({"sha256": "0", "lines": 1, "holes": 0}))
    steps = {
        "corpus": {"use": "dataset"},
        "translated": {"run": "cp -r {made} {output}"},
        "evaluated": {"run": "cat {scores}", "stdout": "{output}", "needs": ["corpus"]},
        "compared": {"run": "cat {compared_json}", "stdout": "{output}"},
        "broken": {"run": "false", "needs": ["evaluated"]},
    }
    write(folder, steps, inputs={"made": "made", "scores": "scores.json", "compared_json": "compared.json"})
    run(folder, code=1)
    return (folder / "out/my/report.md").read_text()


def test_all_kinds_of_results(text: str) -> None:
    assert "> 4 of 5 steps are done" in text
    assert "### evaluated, news&lt;b&gt;\n\n| figure | is |\n| --- | --: |\n| bleu | 31.25 |" in text
    assert "checkpoint" not in text
    assert "| BLEU of b | 31.00 \u00b1 1.25 (+1.00 \u00b1 0.50) |" in text
    assert "### translated: 1 lines, 0 without a translation" in text
    assert "| une &lt;i&gt;ligne&lt;/i&gt; |" in text
    assert "- en to fr, " in text.partition("### corpus\n")[2].partition("###")[0]
    assert text.partition("| source | target |")[2].partition("\n\n")[0].count("\n") == 4, "a rule and three pairs"
    assert "```mermaid\ngraph LR\n" in text
    assert "  corpus --> evaluated" in text


def test_mermaid() -> None:
    rows = [{"step": "a", "state": "done", "needs": ["text"]}, {"step": "b", "state": "waiting", "needs": ["a"]}]
    lines = ['  a["a (done)"]', "  text --> a", '  b["b (waiting)"]', "  a --> b"]
    assert mermaid(rows) == "\n".join(["graph LR", *lines])
