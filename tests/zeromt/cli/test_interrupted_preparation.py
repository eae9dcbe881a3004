"""`zeromt prepare` ended by a signal, and gone on with."""

import signal
from pathlib import Path

import pytest

from tests.conftest import BUNDLED, Call, Corpus, Start, descendants, is_running, zeromt
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)]
)
def test_signal_ends_it_and_the_same_command_goes_on(
    start: Start, call: Call, corpus_en_fr: Corpus, tmp_path: Path, number: signal.Signals
) -> None:
    output, work = tmp_path / "prepared", tmp_path / ".prepared.preparing"
    settings = (f"prepare.output={output}", f"prepare.root={BUNDLED}", "prepare.pairs_per_block=32")
    command = start(*zeromt("prepare", "debug", *settings, "prepare.workers=2"))
    wait_until(lambda: bool(list(work.glob("*/survey"))))
    below = descendants(command.process.pid)
    command.process.send_signal(number)
    done = command.finish()
    assert done.code == 75, done.err
    assert done.err.splitlines()[-1] == f"zeromt: {number.name}: ended; the same command resumes"
    assert "Traceback" not in done.err
    wait_until(lambda: not any(map(is_running, below)))
    assert not output.exists()
    assert call("prepare", "debug", *settings).code == 0
    assert (output / "index.json").read_bytes() == (corpus_en_fr.folder / "index.json").read_bytes()
    assert not work.exists()
