"""The report card's command: what cells do does not end it, and killed at any moment it resumes."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.child import ROOT, call_named
from benchmarks.device.report_card import __main__ as command
from benchmarks.device.report_card import kept
from benchmarks.device.report_card.cells import CELLS, Cell
from benchmarks.device.report_card.kept import Kept
from tests.benchmarks.report_card.example_card import NAMES
from tests.conftest import environment, is_running
from tests.waiting import PATIENCE, wait_until

COMMAND = "benchmarks.device.report_card"
EXAMPLE_CARD = "tests.benchmarks.report_card.example_card"
EXAMPLES = "tests.benchmarks.report_card.example_cells"
MANY_CELLS = 6 * PATIENCE
CARD = {"card": "CPU", "cards": 0, "versions": {}}
"""What `machine.card` says, which imports torch."""
pytestmark = pytest.mark.timeout(2400)


def start(out: Path, *arguments: str, module: str = COMMAND) -> subprocess.Popen[bytes]:
    options = ["--toy", "--out", str(out), "--work", str(out.parent), *arguments]
    return subprocess.Popen([sys.executable, "-m", module, *options], cwd=ROOT, env=environment())


def lines(out: Path) -> list[dict[str, Any]]:
    file = out / "report.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def cells_of(pid: int) -> list[int]:
    """Processes in which cells of this command run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"benchmarks.common.child" in words and str(pid).encode() in words:
                found.append(int(entry.name))
    return found


def kill_in_a_cell(out: Path, *arguments: str, done: int, begun: int, module: str = COMMAND) -> None:
    """Kill a command when as many cells are done and begun. Nothing of it is left running."""
    process = start(out, *arguments, module=module)

    def is_there() -> bool:
        found = Counter(line["status"] for line in lines(out))
        return (found["ok"] + found["skipped"], found["begun"]) == (done, begun) and bool(cells_of(process.pid))

    wait_until(is_there, f"the cell after {done} others", seconds=MANY_CELLS)
    running = cells_of(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(map(is_running, running)), "a killed command's cell")


def test_killed_twice_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGKILL in the middle of a cell; the third command, with the files of the second, measures what is left."""
    monkeypatch.setenv("EXAMPLE_CARD", str(tmp_path / "go-on"))
    (tmp_path / "go-on").mkdir()
    first, second = tmp_path / "first", tmp_path / "second"
    (tmp_path / "go-on" / "one").touch()
    kill_in_a_cell(first, done=1, begun=2, module=EXAMPLE_CARD)
    (tmp_path / "go-on" / "two").touch()
    kill_in_a_cell(second, "--from", str(first), done=2, begun=4, module=EXAMPLE_CARD)
    for name in NAMES:
        (tmp_path / "go-on" / name).touch()
    assert start(second, module=EXAMPLE_CARD).wait(MANY_CELLS) == 0
    assert [line["cell"] for line in lines(second) if line["status"] == "ok"] == list(NAMES), "each once, in order"
    begun = Counter(line["cell"] for line in lines(second) if line["status"] == "begun")
    assert sum(begun.values()) == len(NAMES) + 2, "the two that were killed, once more"
    page = (second / "page.md").read_text()
    assert f"{len(NAMES)} of {len(NAMES)} cells" in page
    assert "toy size" in page
    assert "How to read it" in page
    assert {path.name for path in second.iterdir()} == {"report.jsonl", "page.md"}
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second", "go-on"}, "nothing of killed ones is left"


def test_cells_of_the_card_itself_at_toy_size(here: Callable[[Sequence[Cell]], int], tmp_path: Path) -> None:
    """What measures a machine, kernels and updates works on a CPU; test_all_of_it_at_toy_size has the others."""
    cells = {cell.name: cell for cell in CELLS}
    tried = [cells[name] for name in ("machine", "kernels", "base 3200")]
    assert here(tried) == 0
    assert {line["cell"]: line["status"] for line in lines(tmp_path / "out") if line["status"] != "begun"} == {
        cell.name: "ok" for cell in tried
    }


SKIPPED = ("is not installed", "needs a card", "compiler")
"""What a reason to skip a cell at toy size may say."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_of_it_at_toy_size(tmp_path: Path) -> None:
    """Killed in part b and in part c."""
    out, more = tmp_path / "out", ("--minutes", "100")
    kill_in_a_cell(out, *more, done=9, begun=10)
    kill_in_a_cell(out, *more, done=22, begun=24)
    assert start(out, *more).wait(3 * MANY_CELLS) == 0
    found = {line["cell"]: line for line in lines(out) if line["status"] != "begun"}
    assert list(found) == [cell.name for cell in CELLS], "each, in order"
    assert sum(line["status"] != "begun" for line in lines(out)) == len(CELLS), "each once"
    for name, line in found.items():
        is_known = line["status"] == "skipped" and any(why in line["reason"] for why in SKIPPED)
        assert line["status"] == "ok" or is_known, (name, line)
    tests = [test for line in found.values() for test in line.get("figures", {}).get("tests", ())]
    assert len(tests) > 70
    assert {test["outcome"] for test in tests} == {"skipped"}, "on a CPU"
    page = (out / "page.md").read_text()
    assert f"{len(CELLS)} of {len(CELLS)} cells" in page
    assert "cannot be shown" not in page
    assert {path.name for path in out.iterdir()} == {"report.jsonl", "page.md"}
    assert sum(path.stat().st_size for path in out.iterdir()) < 1 << 20


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Sequence[Cell]], int]:
    """Runs these cells from this process."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(command, "TOY_PATIENCE", 1)

    def call_but_for_the_card(module: str, function: str, **arguments: Any) -> Any:
        return CARD if function == "card" else call_named(module, function, **arguments)

    monkeypatch.setattr(command, "call_named", call_but_for_the_card)

    def run(cells: Sequence[Cell]) -> int:
        monkeypatch.setattr(command, "CELLS", cells)
        return command.main(["--toy", "--out", str(tmp_path / "out"), "--work", str(tmp_path)])

    return run


def cell(name: str, **more: Any) -> Cell:
    return Cell(letter="a", name=name, function=f"{EXAMPLES}.{name}", **more)


def test_a_cell_that_fails_is_a_line(here: Callable[[Sequence[Cell]], int], tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    hanging = cell("hanging", arguments={"pids": str(pids)}, limit=8)
    assert here([cell("raising"), cell("crashing"), hanging, cell("absent"), cell("good")]) == 1
    found = {line["cell"]: line for line in lines(tmp_path / "out") if line["status"] != "begun"}
    assert {name: line["status"] for name, line in found.items()} == {
        "raising": "failed", "crashing": "failed", "hanging": "failed", "absent": "skipped", "good": "ok",
    }  # fmt: skip
    assert "ValueError: as said here" in found["raising"]["reason"]
    assert f"exit code {-signal.SIGSEGV}" in found["crashing"]["reason"]
    assert "took longer than 8 s" in found["hanging"]["reason"]
    assert found["good"]["figures"] == {"device": "cpu"}
    assert not any(is_running(int(pid)) for pid in pids.read_text().split())
    page = (tmp_path / "out" / "page.md").read_text()
    assert "`absent` skipped: no such library" in page
    assert "ValueError: as said here" in page
    assert not list(tmp_path.glob("zeromt-report-card-*"))


def test_what_failed_comes_again_after_the_others(here: Callable[[Sequence[Cell]], int], tmp_path: Path) -> None:
    raising, good, absent = cell("raising"), cell("good"), cell("absent")
    here([raising, absent])
    here([raising, good, absent])
    begun = [line["cell"] for line in lines(tmp_path / "out") if line["status"] == "begun"]
    assert begun == ["raising", "absent", "good", "raising"]


def test_without_time_nothing_begins(here: Callable[[Sequence[Cell]], int], tmp_path: Path) -> None:
    assert here([cell("good", needs=1e6), cell("absent")]) == 75
    assert [line["cell"] for line in lines(tmp_path / "out")] == ["absent"] * 2


def test_what_the_end_of_the_time_cuts_short_has_not_failed(
    here: Callable[[Sequence[Cell]], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "RESERVE", 60 * 7.5 - 4)
    hanging = cell("hanging", arguments={"pids": str(tmp_path / "pids")}, needs=1)
    assert here([hanging]) == 75
    assert [line["status"] for line in lines(tmp_path / "out")] == ["begun", "cut"]


def test_another_card_or_code_is_measured_anew(
    here: Callable[[Sequence[Cell]], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept, "code", lambda: "one")
    assert [here([cell("good")]) for _ in range(2)] == [0, 0]
    monkeypatch.setattr(kept, "code", lambda: "two")
    assert here([cell("good"), cell("absent")]) == 0
    begun = [(line["cell"], line["code"]) for line in lines(tmp_path / "out") if line["status"] == "begun"]
    assert begun == [("good", "one"), ("absent", "two"), ("good", "two")], "what no code has measured comes first"


def test_sigterm_ends_it_with_what_it_has(tmp_path: Path) -> None:
    process = start(tmp_path / "out", "--parts", "a")
    wait_until(lambda: [x for x in lines(tmp_path / "out") if x["status"] == "begun"], "the first cell")
    wait_until(lambda: cells_of(process.pid), "its process")
    running = cells_of(process.pid)
    process.terminate()
    assert process.wait(PATIENCE) == 75
    assert not any(map(is_running, running))
    assert (tmp_path / "out" / "page.md").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"out"}


def test_sigterm_while_a_cell_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that raises before Popen has returned would leave the cell's process behind."""
    started = []

    class Signalled(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self.pid)
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Signalled)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            call_named("time", "sleep", limit=PATIENCE)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert started
    assert not any(map(is_running, started))


def test_half_a_line_is_passed_over(tmp_path: Path) -> None:
    line = {"cell": "x", "status": "ok", "card": "C", "code": "c"}
    file_of = Kept(tmp_path)
    file_of.add(line)
    with file_of.file.open("a") as file:
        file.write('{"cell": "y", "sta')
    again = Kept(tmp_path)
    assert again.lines == [line]
    again.add({**line, "cell": "z"})
    assert [x["cell"] for x in Kept(tmp_path).lines] == ["x", "z"]


def test_what_a_user_may_get_wrong(tmp_path: Path) -> None:
    for arguments, said in (
        (["--toy", "--from", str(tmp_path / "none")], "has no report.jsonl"),
        ([], "torch sees no GPU"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.device.report_card", "--out", str(tmp_path / "out"), *arguments],
            cwd=ROOT,
            env={**environment(), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == 2
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
        assert os.linesep not in ended.stderr.strip()
