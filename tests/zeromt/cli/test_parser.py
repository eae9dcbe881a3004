"""What argparse itself makes of odd words."""

import pytest

from zeromt.cli.main import parse


def test_two_dashes_behind_an_equals_sign_are_a_value() -> None:
    assert parse(["translate", ".", "-o--"])[1]["output"] == "--"


@pytest.mark.parametrize("option", ["--beam=--", "--ensemble=--", "--processes=--", "--length-penalty-kind=--"])
def test_and_checked_as_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(["translate", ".", option])
    assert capsys.readouterr().err.startswith(f"zeromt: error: argument {option.removesuffix('=--')}: '--'")
