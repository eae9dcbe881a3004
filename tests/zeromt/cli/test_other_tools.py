"""The table of what other programs call things names what is there."""

import re
from pathlib import Path

import pytest

from configs import other_tools
from configs.reading import meanings
from launcher.options import parser
from zeromt.cli.main import COMMANDS, main


def test_ours_with_words_of_others_is_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("stream: {micro_batches: 1}\nlearning_rate: 1\nnum_train_epochs: 3\n")
    assert main(["train", str(tmp_path / "my.yaml")]) == 2
    said = [line.partition("error: ")[2].partition(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["learning_rate", "num_train_epochs"]


def test_table_is_right() -> None:
    """What the table says exists; what it calls another program's is not ours at that place."""
    fields = {field.path.replace("[N]", "") for field in meanings.fields()} | {"preset"}
    for here in set(other_tools.MEANT.values()):
        paths = {word.strip("(),").partition("=")[0] for word in here.split() if "." in word or here == word}
        assert here.startswith(("not needed", "output")) or paths <= fields, here
    for program, keys in other_tools._SHAPES.items():
        assert [key for key in keys.split() if key in fields] == [], program
    options = [option for here in set(parser.OPTIONS.values()) for option in here.split() if option.startswith("--")]
    known = {option for command in COMMANDS.values() for option in _options(command.add_arguments)}
    assert [option for option in options if option not in known] == []
    for here in other_tools._COMMANDS:
        named = re.findall("`zeromt ([a-z]+)", here)
        assert [name for name in named if name not in {command.split()[0] for command in COMMANDS}] == []


def _options(add_arguments: object) -> set[str]:
    from launcher.options.parser import Parser

    parser = Parser(prog="test")
    add_arguments(parser)  # type: ignore[operator]
    return {option for action in parser._actions for option in action.option_strings}
