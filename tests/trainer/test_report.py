"""The report in a run's folder, made from its files alone."""

import itertools
import json
import logging
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from configs.process.text import markdown
from tests.conftest import read_metrics
from tests.small import small_runs
from trainer.main import _report
from trainer.report import Code, Panel, Table, read_course, svg, table_lines, write
from zeromt.cli.main import main


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = Path(shutil.copytree(small_runs(), tmp_path / "root"))
    monkeypatch.chdir(copied)
    return copied


def test_a_report_has_what_is_known_of_a_run(root: Path) -> None:
    trained = (root / "runs/mixture/report.md").read_text()
    written = write(root / "runs/mixture").read_text()
    assert lasting(trained) == lasting(written), "the same at the end of training and later"
    parts = [line for line in written.splitlines() if line.startswith("## ")]
    assert parts == ["## Settings", "## Scores", "## Curves", "## Translations"]
    [evaluated] = read_metrics(root / "runs/mixture", "evaluation")
    score, signature = f"{evaluated['chrf/dataset_b']:.4g}", str(evaluated["chrf_signature"])
    row = f"| chrf/dataset\\_b | {score} | {score} at {evaluated['step']} | <code>{markdown(signature)}</code> |"
    assert row in written
    assert written.count("(validation)") == 2, "each set has translations"
    ET.parse(root / "runs/mixture/report.svg")


def lasting(text: str) -> list[str]:
    """What does not depend on the time."""
    return [line for line in text.splitlines() if "Written " not in line and "| time |" not in line]


def test_a_run_that_has_just_begun_and_a_folder_that_is_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = root / "runs/begun"
    begun.mkdir()
    shutil.copy(root / "runs/small/config.yaml", begun)
    assert main(["report", "runs/begun"]) == 0
    text = (begun / "report.md").read_text()
    assert "no status. Written" in text
    assert "## Scores" not in text
    assert main(["report", "corpus"]) == 2
    assert "config.yaml" in capsys.readouterr().err


def test_a_long_run_is_thinned(tmp_path: Path) -> None:
    logged = [{"kind": "train", "step": step, "nll": 1 / step, "total_seconds": step} for step in range(1, 20_001)]
    logged += [{"kind": "evaluation", "step": 9, "bleu": 1.0}, {"kind": "score", "step": 9, "late": 2.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in logged) + '{"kind": "tr')
    course = read_course(tmp_path)
    assert course.trained["step"] == 20_000
    assert course.evaluations == {9: {"kind": "evaluation", "step": 9, "bleu": 1.0, "late": 2.0}}
    steps = [step for step, _ in course.losses]
    assert 300 <= len(steps) < 600
    assert {after - before for before, after in itertools.pairwise(steps)} == {steps[1] - steps[0]}


def test_no_error_of_a_report_is_one_of_the_run(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "runs/small/config.yaml").write_text("]")
    with caplog.at_level(logging.WARNING):
        _report(root / "runs/small")
    assert "zeromt report" in caplog.text


def test_text_of_others_is_text() -> None:
    rows = [(Code("a`|`b"), "<b> x|y "), ("*z*", "1.5")]
    table = Table(title="<t>", head=("one", "two"), rows=rows, notes=["_n_"])
    assert list(table_lines(table)) == [
        "### &lt;t&gt;", "",
        "| one | two |", "| --- | --- |",
        "| <code>a\\`\\|\\`b</code> | &lt;b&gt; x\\|y  |", "| \\*z\\* | 1.5 |", "",
        "- \\_n\\_", "",
    ]  # fmt: skip


@pytest.mark.parametrize("values", [[0.0], [1.0, 1.0], [1e-300, 0], [-5, float("nan"), 7e5], [3, 1e308]])
def test_any_curve_is_drawn(values: list[float]) -> None:
    drawn = svg([Panel(title="<&>", curves={"\x1b<c>": list(enumerate(values))})])
    assert "nan" not in drawn
    ET.fromstring(drawn)
