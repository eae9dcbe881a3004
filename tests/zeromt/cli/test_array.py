"""`zeromt launch KIND --array N -- COMMAND ...`: which commands it takes, and what a launcher gets of them."""

from pathlib import Path

import pytest

from launcher.options.command import Command
from launcher.options.parser import Parser
from zeromt.cli import main as cli

ARRAY = ("launch", "slurm", "--site", "cpu", "--array=2", "--plugins", "here.py")


def test_a_launcher_gets_the_words_and_whose_run_it_is() -> None:
    words = ["prepare", "c", "--plugins", "p.py", "--", "a=1", "--b"]
    given = cli.parse([*ARRAY, "--", *words])[1]
    assert (given["array"], given["words"]) == (2, words)
    assert (given["config"], given["overrides"], given["plugins"]) == ("c", ["a=1", "--b"], ["here.py", "p.py"])


def test_without_it_two_dashes_end_the_options() -> None:
    given = cli.parse(["launch", "slurm", "c", "--", "a=1", "--array"])[1]
    assert (given["config"], given["overrides"], given["words"]) == ("c", ["a=1", "--array"], ())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--array: no command to run; give one behind `--`"),
        (["--"], "--array: no command to run; give one behind `--`"),
        (["c", "--", "prepare", "c"], "--array: CONFIG and settings are the command's; give them behind `--`"),
        (["--", "prepar", "c"], "COMMAND: 'prepar' is unknown; did you mean prepare?"),
        (["--", "train", "c"], "--array: train takes no --part I/N and --merge"),
        (["--", "prepare"], "the following arguments are required: CONFIG; see `zeromt prepare --help`"),
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


def test_a_command_without_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add(parser: Parser) -> None:
        parser.add_argument("text")
        parser.add_argument("--part")
        parser.add_argument("--merge", action="store_true")

    monkeypatch.setitem(cli.COMMANDS, "count", Command(summary="", usage="", add_arguments=add, target=""))
    monkeypatch.chdir(tmp_path)
    assert cli.main([*ARRAY[:5], "--dry-run", "--", "count", "a text"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --job-name=count\n" in script
    assert f"#SBATCH --output='{tmp_path}/runs/count/logs/count-%A_%a.out'\n" in script
    assert "\nwords=(count 'a text')\n" in script
