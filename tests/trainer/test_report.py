"""The report in a run's folder, made from its files alone."""

import json
import logging
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest

from configs.process.chart import Panel, svg
from configs.process.document import Cell, Code, Part, Table, to_markdown
from tests.small import small_runs
from trainer.main import _report
from trainer.report import write
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
    assert parts == [
        "## Scores", "## Curves", "## Translations", "## Data", "## Model and training", "## Cost",
        "## To make it again",
    ]  # fmt: skip
    [evaluated] = [line for line in lines(root / "runs/mixture/metrics.jsonl") if line["kind"] == "evaluation"]
    row = f"| dataset\\_b (validation) | chrF | {evaluated['chrf/dataset_b']:.2f} | {evaluated['step']} |"
    assert row in written
    assert str(evaluated["chrf_signature"]).replace("|", "\\|") in written
    assert "--nproc 1" in written
    ET.parse(root / "runs/mixture/report.svg")


def lasting(text: str) -> list[str]:
    """What depends neither on the time nor on the folder from which it is written."""
    return [line for line in text.partition("## To make")[0].splitlines() if "Written " not in line]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_that_has_just_begun_and_a_folder_that_is_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = root / "runs/begun"
    begun.mkdir()
    shutil.copy(root / "runs/small/config.yaml", begun)
    assert main(["report", "runs/begun"]) == 0
    text = (begun / "report.md").read_text()
    assert "no status: - updates" in text
    assert "## Scores" not in text
    assert main(["report", "corpus"]) == 2
    assert "config.yaml" in capsys.readouterr().err


def test_no_error_of_a_report_is_one_of_the_run(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "runs/small/config.yaml").write_text("]")
    with caplog.at_level(logging.WARNING):
        _report(root / "runs/small")
    assert "zeromt report" in caplog.text


def test_text_of_others_is_text() -> None:
    rows: list[Sequence[Cell]] = [(Code("a`|`b"), [("<b>", False), (" x|y ", True)]), ("*z*", "1.5")]
    table = Table(title="<t>", head=("one", "two"), rows=rows, notes=["_n_"])
    shown = to_markdown("# x", [Part(title="p", listing=("sh", "echo '```'"), tables=[table]), Part(title="none")])
    assert shown.splitlines() == [
        "# # x", "", "## p", "", "````sh", "echo '```'", "````", "", "### &lt;t&gt;", "",
        "| one | two |", "| --- | --- |",
        "| <code>a\\`\\|\\`b</code> | &lt;b&gt; <b>x\\|y</b>  |", "| \\*z\\* | 1.5 |", "",
        "- \\_n\\_",
    ]  # fmt: skip


@pytest.mark.parametrize("values", [[0.0], [1.0, 1.0], [1e-300, 0], [-5, float("nan"), 7e5], [3, 1e308]])
def test_any_curve_is_drawn(values: list[float]) -> None:
    drawn = svg([Panel(title="<&>", curves={"\x1b<c>": list(enumerate(values))})], below="updates")
    assert "nan" not in drawn
    ET.fromstring(drawn)
