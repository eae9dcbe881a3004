"""`zeromt status` of a folder: its runs as a table."""

import json
import os
import re
import time
from pathlib import Path

import pytest

from configs import UserError
from launcher.monitoring.control import status
from launcher.monitoring.run_table import runs_in, table
from tests.launcher.monitoring.test_progress import checkpoint, evaluation, train, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs: one ended by its clock, one in a folder of several that died, and one that never trained."""
    runs = tmp_path / "runs"
    for age, (name, state, step) in enumerate(
        (("a-run-with-a-name-of-many-words", "finished", 67), ("rates/lr-1", "running", 1000), ("new", "refused", None))
    ):
        run = runs / name
        run.mkdir(parents=True)
        written = {"state": state, "step": step, "updated": time.time() - 60 * age, "host": "elsewhere", "pid": 1}
        (run / "status.json").write_text(json.dumps(written))
        os.utime(run / "status.json", (time.time() - 60 * age,) * 2)
    clocked, died = runs / "a-run-with-a-name-of-many-words", runs / "rates" / "lr-1"
    (clocked / "config.yaml").write_text("training: {max_updates: 1100, max_minutes: 10}\n")
    lines = [{**train(step, seconds=step * 9.0, tokens=step), "loss": 5.0 + step / 1000} for step in (50, 67)]
    write(clocked / "metrics.jsonl", [lines[0], evaluation(60, 12.5), lines[1]])
    (died / "config.yaml").write_text("training: {max_updates: 3000}\n")
    checkpoint(died, 800, {400: 21.5, 800: 19.0})
    write(died / "metrics.jsonl", [train(step, seconds=step / 4, tokens=step) for step in (900, 1000)])
    return runs


def test_a_row_a_run(folder: Path) -> None:
    runs = runs_in(folder)
    rows = [re.split("  +", line) for line in table(folder, runs, width=200).splitlines()]
    assert rows == [
        ["run", "state", "done", "of", "loss", "best", "updates/s", "written", "time left"],
        ["a-run-with-a-name-of-ma…", "finished", "100%", "67 updates, 10:03 of 10:00", "5.067", "BLEU 12.50 at 60",
         "0.111", "0 s ago", "-"],
        ["rates/lr-1", "died", "33%", "1,000 of 3,000 updates", "-", "BLEU 21.50 at 400", "4", "60 s ago", "-"],
        ["new", "refused", "-", "-", "-", "-", "-", "2 min ago", "-"],
    ]  # fmt: skip


@pytest.mark.parametrize(("width", "left_out"), [(80, {"of", "updates/s", "written"}), (120, {"written"})])
def test_as_much_as_fits(folder: Path, width: int, left_out: set[str]) -> None:
    lines = table(folder, runs_in(folder), width=width).splitlines()
    assert max(map(len, lines)) <= width
    names = {"run", "state", "done", "of", "loss", "best", "updates/s", "written", "time left"}
    assert {*re.split("  +", lines[0])} == names - left_out


def test_of_the_folder_or_of_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert status(run=None, as_json=True) == 0
    assert [run["run"] for run in json.loads(capsys.readouterr().out)] == [str(run) for run in runs_in(Path("runs"))]
    (folder.parent / "none").mkdir()
    monkeypatch.chdir(folder.parent / "none")
    with pytest.raises(UserError, match=r"there is no run in [.]"):
        status(run=None, as_json=False)
