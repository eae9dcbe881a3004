"""Requests to stop, by signal and by file; and what a rank leaves in its folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.process import signals
from configs.process.signals import STOP_SIGNALS, StopRequest
from tests.conftest import ask_python, environment
from tests.waiting import wait_until


@pytest.fixture
def request_to_stop() -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield StopRequest()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_signals(request_to_stop: StopRequest, name: str) -> None:
    number = signal.Signals[name]
    assert signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN), f"{name} would end the rank, unsaved"
    assert not request_to_stop()
    assert request_to_stop.reason is None
    for sent in (number, signal.SIGTERM):  # a second one changes nothing
        os.kill(os.getpid(), sent)
        assert request_to_stop()
        assert request_to_stop.reason == number.name


def test_file(request_to_stop: StopRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_LOOK_SECONDS", 3600.0)
    request_to_stop.watch_file(tmp_path / "STOP")
    assert not request_to_stop()
    (tmp_path / "STOP").touch()
    assert not request_to_stop(), "it is not looked for at every update"
    request_to_stop._next_look = 0.0
    assert request_to_stop()
    request_to_stop.consume()
    assert list(tmp_path.iterdir()) == []
    assert request_to_stop(), "a request stands"
    assert request_to_stop.reason == "stop file"
    request_to_stop.consume()


def test_users_wish_counts_for_more_than_a_signal(request_to_stop: StopRequest, tmp_path: Path) -> None:
    """Else a scheduler would start again what a user stopped while its time limit was near."""
    request_to_stop.watch_file(tmp_path / "STOP")
    os.kill(os.getpid(), signal.SIGUSR1)
    assert request_to_stop()
    (tmp_path / "STOP").touch()
    assert request_to_stop.reason == "stop file"


def test_settled_outcome_is_not_changed_by_a_late_signal() -> None:
    """The signal comes while Python ends the process, with its own handlers back in place."""
    code = """if True:
        import os, signal, sys
        from configs.process.signals import StopRequest
        class Late:
            def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):
                kill(pid, number)
        stop = StopRequest()
        if sys.argv[1] == "settled":
            stop.settle()
        sys.late = Late()  # goes with the module sys, the last of all
        sys.exit(75)
    """
    for state, expected in (("settled", 75), ("open", -signal.SIGTERM)):
        assert subprocess.run([sys.executable, "-c", code, state], env=environment()).returncode == expected


def test_hangup_stays_ignored_under_nohup() -> None:
    code = """if True:
        import os, signal
        from configs.process.signals import StopRequest
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        stop = StopRequest()
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        stop.settle()
    """
    ask_python(code)


def test_rank_is_asked_to_save_when_its_agent_dies(tmp_path: Path) -> None:
    """By the kernel, at once; and it knows why."""
    rank = """if True:
        import os, pathlib, time
        from configs.process.signals import StopRequest, end_with_parent
        stop = StopRequest()
        end_with_parent()
        pathlib.Path("up").write_text(str(os.getpid()))
        while not stop():
            time.sleep(0.01)
        pathlib.Path("said.tmp").write_text(stop.reason)
        pathlib.Path("said.tmp").rename("said")
    """
    agent = """if True:
        import os, subprocess, sys
        subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True).wait()
    """
    variables = environment() | {"TORCHELASTIC_RUN_ID": "x"}
    with subprocess.Popen([sys.executable, "-c", agent, rank], env=variables, cwd=tmp_path) as process:
        wait_until(lambda: (tmp_path / "up").exists())
        process.kill()
    wait_until(lambda: (tmp_path / "said").exists())
    assert (tmp_path / "said").read_text() == "torchrun is gone"
