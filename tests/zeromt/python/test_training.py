"""Training from Python: exceptions, Ctrl-C, threads, the caller's end, and errors."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import zeromt
from tests.conftest import environment, is_running
from tests.waiting import PATIENCE, wait_until
from tests.zeromt.python.conftest import write_config
from trainer.runs.layout import STATUS_FILE, newest_step
from trainer.runs.status import read_status

LONG = ("training.max_updates=100000", "training.log_every=1", "checkpoint.every_updates=50000")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("python")
    zeromt.prepare(write_config(folder), quiet=True)
    return folder / "prepared"


@pytest.fixture
def prepared(config: Path, dataset: Path) -> Path:
    shutil.copytree(dataset, config.parent / "prepared")
    return config


def test_it_is_stopped_by_an_exception_and_by_ctrl_c_and_goes_on_in_a_thread(prepared: Path, tmp_path: Path) -> None:
    run, steps = tmp_path / "runs" / "my", []

    def fail(line: Mapping[str, Any]) -> None:
        if line["step"] >= 5:
            raise ArithmeticError("enough")

    with pytest.raises(ArithmeticError, match="enough"):
        zeromt.train(prepared, overrides=LONG, nproc=1, on_log=fail, quiet=True)
    first = newest_step(run)
    assert first >= 5
    status = read_status(run / STATUS_FILE)
    assert status is not None
    assert (status.state, status.step, status.stop_reason) == ("stopped", first, "SIGTERM")

    def interrupt(line: Mapping[str, Any]) -> None:
        steps.append(line["step"])
        if line["kind"] == "train" and len(steps) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    with pytest.raises(KeyboardInterrupt):
        zeromt.train(prepared, overrides=LONG, nproc=1, on_log=interrupt, quiet=True)
    second = newest_step(run)
    assert min(steps) >= first  # no line of before
    assert second > first
    ended: list[zeromt.Outcome] = []
    more = [*LONG, f"training.max_updates={second + 3}"]
    thread = threading.Thread(
        target=lambda: ended.append(zeromt.train(prepared, overrides=more, nproc=1, quiet=True)), daemon=True
    )
    thread.start()
    thread.join(PATIENCE)
    assert [(one.state, one.step, one.folder) for one in ended] == [("finished", second + 3, run)]
    assert [signal.getsignal(number) for number in signal.valid_signals()] == handlers


def test_a_caller_that_is_killed_leaves_a_saved_run(prepared: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "my"
    code = f"import zeromt; zeromt.train({str(prepared)!r}, overrides={list(LONG)!r}, nproc=1)"
    caller = subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: (status := read_status(run / STATUS_FILE)) is not None and (status.step or 0) > 0)
    finally:
        caller.kill()
        caller.wait()
    wait_until(lambda: (status := read_status(run / STATUS_FILE)) is not None and status.state == "stopped")
    status = read_status(run / STATUS_FILE)
    assert status is not None
    assert status.pid is not None
    assert newest_step(run) == status.step
    wait_until(lambda: not is_running(status.pid or 0))


def test_what_is_wrong_is_said(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(zeromt.UserError, match=r"^optimizer\.lrr: "):
        zeromt.prepare(config, overrides=["optimizer.lrr=1"])
    with pytest.raises(zeromt.UserError, match="zeromt prepare"):
        zeromt.train(config, quiet=True)
    with pytest.raises(zeromt.UserError, match="CONFIG: "):
        zeromt.train("no such.yaml")
    assert "zeromt: error: optimizer.lrr" in capsys.readouterr().out


def test_a_string_is_no_list(config: Path) -> None:
    with pytest.raises(TypeError, match="overrides: a str; give a list of str"):
        zeromt.train(config, overrides="optimizer.lr=1")
    with pytest.raises(TypeError, match="plugins: a str"):
        zeromt.prepare(config, plugins="mine.py")
    with pytest.raises(TypeError, match="on_log: list"):
        zeromt.train(config, on_log=[])  # type: ignore[arg-type]
