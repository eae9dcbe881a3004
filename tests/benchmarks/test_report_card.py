"""The report card's command, at toy size on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.device.report_card.cells import CELLS
from tests.conftest import REPO, environment
from tests.waiting import PATIENCE, wait_until

SKIPPED = ("is not installed", "needs a card")
"""What a reason to skip a cell here may say."""


@pytest.mark.parametrize(
    "names", [["machine", "kernels"], pytest.param(list(CELLS), marks=pytest.mark.slow)], ids=["two", "all"]
)
@pytest.mark.timeout(5400)
def test_killed_in_its_second_cell_it_goes_on(names: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "benchmarks.device.report_card", "--toy", "--minutes", "90"]
    command += ["--out", str(out), "--work", str(tmp_path), "--cells", *names]

    def lines() -> list[dict[str, Any]]:
        file = out / "report.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    killed = subprocess.Popen(command, cwd=REPO, env=environment())
    try:
        wait_until(lambda: lines() != [], "the first cell", seconds=4 * PATIENCE)
    finally:
        killed.kill()
        killed.wait()
    assert subprocess.run(command, cwd=REPO, env=environment(), timeout=5400).returncode == 0
    assert [line["cell"] for line in lines()] == names, "each once, in order"
    for line in lines():
        assert line["status"] == "ok" or any(why in line["reason"] for why in SKIPPED), line
    assert f"{len(names)} of {len(CELLS)} cells" in (out / "page.md").read_text()
