"""`zeromt prepare` ended by a signal, and gone on with."""

import signal
from pathlib import Path

import pytest

from tests.conftest import BUNDLED, Start, descendants, is_running, zeromt
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)]
)
def test_signal_ends_it_and_the_same_command_goes_on(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    output = tmp_path / "prepared"
    settings = (f"prepare.output={output}", f"prepare.root={BUNDLED}", "prepare.workers=2")
    command = start(*zeromt("prepare", "tatoeba_demo", *settings))
    wait_until(lambda: len(descendants(command.process.pid)) >= 2)  # its pool is at work
    below = descendants(command.process.pid)
    command.process.send_signal(number)
    done = command.finish()
    assert done.code == 75, done.err
    assert done.err.splitlines()[-1] == f"zeromt: {number.name}: ended; the same command goes on from here"
    assert "Traceback" not in done.err
    wait_until(lambda: not any(map(is_running, below)))
    assert not output.exists()


def test_interrupted_and_gone_on_with_is_the_same_dataset(start: Start, tmp_path: Path) -> None:
    indexes = []
    for name in ("whole", "interrupted"):
        output = tmp_path / name
        arguments = zeromt("prepare", "debug", f"prepare.output={output}", f"prepare.root={BUNDLED}")
        command = start(*arguments)
        if name == "interrupted":
            work = tmp_path / ".interrupted.preparing"
            wait_until(lambda work=work: bool(list(work.glob("*/survey"))))  # type: ignore[misc]
            command.process.send_signal(signal.SIGTERM)
            assert command.finish().code == 75
            command = start(*arguments)
        done = command.finish()
        assert done.code == 0, done.err
        indexes.append((output / "index.json").read_bytes())
    assert indexes[0] == indexes[1]
    assert not list(tmp_path.glob(".*.preparing"))
