"""Standard output that cannot be written, and a reader that has enough."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher.conftest import environment
from tests.waiting import PATIENCE
from zeromt.cli import main as cli
from zeromt.cli.main import main


@pytest.mark.parametrize("letters", [10, 1_000_000])  # what fits the buffer, and what goes past it
def test_standard_output_that_cannot_be_written_is_named(
    letters: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(**_: str) -> int:
        print("x" * letters, flush=True)
        return 0

    monkeypatch.setattr(cli, "resolve", lambda _: write)
    full = Path("/dev/full").open("w")  # noqa: SIM115 (closing it fails, too)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["inspect", "."]) == 1
    with contextlib.suppress(OSError):
        full.close()
    assert capsys.readouterr().err.startswith("zeromt: error: standard output: No space left on device")


def test_reader_that_has_enough() -> None:
    code = (
        "import sys; from zeromt.cli import main as cli\n"
        "def write(**_):\n    while True: print('x' * 1000)\n"
        "cli.resolve = lambda _: write\n"
        "sys.exit(cli.main(['inspect', '.']))"
    )
    pipe = ["bash", "-c", 'set -o pipefail; "$@" | head -1', "bash", sys.executable, "-c", code]
    done = subprocess.run(pipe, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (1, "")
