"""`zeromt launch slurm --array N -- COMMAND ...`: which commands it takes, and what a launcher gets of them."""

from pathlib import Path

import pytest

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
    ("words", "message"),
    [
        ([], "--array: no command to run; give one behind `--`"),
        (["--"], "--array: no command to run; give one behind `--`"),
        (["c", "--", "prepare", "c"], "--array: CONFIG and settings are the command's; give them behind `--`"),
        (["--", "prepar", "c"], "COMMAND: 'prepar' is unknown; did you mean prepare?"),
        (["--", "train", "c"], "--array: train takes not --part I/N and --merge; give a command that does: prepare"),
        (["--", "completion", "bash"], "--array: completion takes not --part I/N and --merge"),
        (["--fresh", "--", "prepare", "c"], "--fresh: not with --array, where nothing is trained"),
        (["--reset=data", "--", "prepare", "c"], "--reset: not with --array, where nothing is trained"),
        (
            ["--from", "runs/a", "--", "prepare", "c"],
            "--from: not with --array, where nothing is trained; leave it out",
        ),
        (
            ["--device", "cpu", "--", "prepare", "c"],
            "--device: not with --array, where nothing is trained; leave it out",
        ),
        (["--", "prepare"], "the following arguments are required: CONFIG; see `zeromt prepare --help`"),
        (["--", "translate", "."], "--output: none given to translate; give the folder that its parts share"),
        (["--", "prepare", "c", "--merge"], "--part, --merge: the array gives them to its tasks"),
        (["--", "prepare", "c", "--part", "1/2"], "--part, --merge: the array gives them to its tasks"),
    ],
)
def test_refusals(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.parse([*ARRAY, *words])
    said = capsys.readouterr().err
    assert said.startswith(f"zeromt: error: {message}"), said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--help", "--", "prepare", "c"]])
def test_help_needs_no_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.parse([*ARRAY, *words])
    assert "usage: zeromt launch slurm CONFIG" in capsys.readouterr().out
