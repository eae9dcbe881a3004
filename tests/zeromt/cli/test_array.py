"""`zeromt launch slurm --array N -- COMMAND ...`: which commands it takes, and what a launcher gets of them."""

from pathlib import Path

import pytest

from tests.conftest import Refused
from zeromt.cli import main as cli

ARRAY = ("launch", "slurm", "--site", "cpu", "--array=2", "--plugins", "here.py")


def test_a_launcher_gets_the_words_and_whose_run_it_is() -> None:
    words = ["prepare", "c", "--plugins", "p.py", "--", "a=1", "--b"]
    given = cli.parse([*ARRAY, "--", *words])[1]
    assert given["array"] == (words, 2, None)
    assert (given["config"], given["overrides"], given["plugins"]) == ("c", ["a=1", "--b"], ["here.py", "p.py"])


def test_a_command_without_config_says_where_its_jobs_belong(tmp_path: Path) -> None:
    (tmp_path / "in").touch()
    words = ["translate", str(tmp_path), "-i", str(tmp_path / "in"), "-o", "out"]
    given = cli.parse([*ARRAY, "--", *words])[1]
    assert given["array"] == (words, 2, "out")
    assert (given["config"], given["overrides"]) == ("out", [])


def test_without_it_two_dashes_end_the_options() -> None:
    given = cli.parse(["launch", "slurm", "c", "--", "a=1", "--array"])[1]
    assert (given["config"], given["overrides"], given["array"]) == ("c", ["a=1", "--array"], None)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "--array"),
        (["--"], "--array"),
        (["c", "--", "prepare", "c"], "--array: CONFIG"),
        (["--", "prepar", "c"], "COMMAND: 'prepar'"),
        (["--", "train", "c"], "--array: train"),
        (["--", "completion", "bash"], "--array: completion"),
        (["--fresh", "--", "prepare", "c"], "--fresh"),
        (["--reset=data", "--", "prepare", "c"], "--reset"),
        (["--from", "runs/a", "--", "prepare", "c"], "--from"),
        (["--device", "cpu", "--", "prepare", "c"], "--device"),
        (["--", "prepare"], "the following arguments are required: CONFIG"),
        (["--", "translate", "."], "--output"),
        (["--", "prepare", "c", "--merge"], "--part, --merge"),
        (["--", "prepare", "c", "--part", "1/2"], "--part, --merge"),
    ],
)
def test_refusals(words: list[str], named: str, refused: Refused) -> None:
    assert refused(*ARRAY, *words).startswith(named)


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--help", "--", "prepare", "c"]])
def test_help_needs_no_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.parse([*ARRAY, *words])
    assert "usage: zeromt launch slurm CONFIG" in capsys.readouterr().out
