"""Commands whose outputs are inputs or cannot be written, or whose streams are closed: nothing is lost."""

import select
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Refused, Start, contents, zeromt
from tests.small import FILES, small_runs
from tests.trainer.conftest import TrainedRun
from tests.waiting import PATIENCE
from zeromt.cli.main import main


@pytest.fixture
def lines(trained: TrainedRun, tmp_path: Path) -> Path:
    """A folder with five lines in s and r."""
    for name, path in (("s", trained.source), ("r", trained.reference)):
        (tmp_path / name).write_text("".join(path.read_text().splitlines(keepends=True)[:5]))
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "-i", "s", "-o", "s"],
        ["translate", "-i", "s", "-o", "link"],
        ["translate", "-i", "s", "--score", "-o", "s"],
        ["evaluate", "--source", "s", "--reference", "r", "-o", "r"],
        ["evaluate", "--source", "s", "--reference", "r", "-o", "link"],
        ["translate", "-i", "s", "-o", "RUN/metrics.jsonl"],
        ["evaluate", "--source", "s", "--reference", "r", "-o", "RUN/checkpoints/step-00000300/config.yaml"],
    ],
    ids=" ".join,
)
def test_an_output_that_is_an_input(arguments: list[str], lines: Path, trained: TrainedRun, refused: Refused) -> None:
    (lines / "link").symlink_to("s")
    run = Path(shutil.copytree(trained.folder, lines / "RUN"))
    before = contents(lines)
    assert "; give another" in refused(arguments[0], str(run), *arguments[1:])
    assert contents(lines) == before, "an input has changed"


def test_scores_are_shown_whatever_becomes_of_the_file(
    lines: Path, trained: TrainedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = str(lines / "s"), str(lines / "r")
    code = main(["evaluate", str(trained.folder), "--source", source, "--reference", reference, "-o", "/dev/full"])
    said = capsys.readouterr()
    assert '"bleu"' in said.out
    assert code == 2
    assert said.err.startswith("zeromt: error: --output: '/dev/full' cannot be written: No space left on device")


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_idle_pipe_is_answered(processes: str, lines: Path, trained: TrainedRun, start: Start) -> None:
    """One line at a time, as a program that holds the pipe open would; it goes on when the answer is there."""
    command = start(*zeromt("translate", str(trained.folder), "--processes", processes))
    process: Any = command.process
    for line in (lines / "s").read_text().splitlines()[:3]:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], PATIENCE)[0], "no answer while the pipe is held open"
        assert process.stdout.readline()
    done = command.finish()
    assert (done.code, done.out) == (0, "")


def test_a_new_folder_whose_name_is_no_utf_8(tmp_path: Path, refused: Refused) -> None:
    run = str(small_runs() / "runs" / "small")
    said = refused("export", run, "--format=ctranslate2", "-o", f"{tmp_path}/caf\udce9")
    assert said.endswith("caf\\udce9': is not UTF-8; give a name that is; see `zeromt export --help`")


def test_a_dataset_in_a_loop_of_links(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "loop").symlink_to("loop")
    refused("prepare", str(FILES / "small.yaml"), "prepare.output=loop", f"prepare.root={FILES}/corpus")
