"""The command line of one rank."""

import pytest

from trainer.main import main


@pytest.mark.parametrize("reset", ["bogus", "data,bogus"])
def test_what_to_reset_is_checked(reset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["debug", "--reset", reset]) == 2
    said = f"zeromt: error: --reset: {reset!r} is unknown; allowed is data, optimizer or data,optimizer\n"
    assert capsys.readouterr().err == said
