"""`zeromt launch local` from end to end, with torchrun and two ranks of a pretending trainer."""

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.conftest import is_running
from tests.launcher.conftest import ROOT, command_line, environment
from tests.waiting import PATIENCE, wait_until

Launch = Callable[..., "subprocess.Popen[str]"]


def wait_for(*paths: Path) -> None:
    wait_until(lambda: all(p.exists() and p.read_text() for p in paths), f"all of {paths}")


def run_folder(workplace: Path) -> Path:
    return workplace / "runs" / "debug"


def test_finished_runs_side_by_side(launch: Launch, workplace: Path) -> None:
    children = [launch("finish,finish", "--nproc", "2", "seed=3", f"name=job{n}") for n in (1, 2)]
    for number, child in enumerate(children, start=1):
        out, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0, err
        assert out.splitlines() == ["rank 0 of 2 says hello"]
        assert len(err.splitlines()) == 1
        assert "2 processes" in err
        logs = list((workplace / "runs" / f"job{number}").glob("logs/*/attempt_0/1/stdout.log"))
        assert [p.read_text() for p in logs] == ["rank 1 of 2 says hello\n"]


def test_refusal_by_another_rank_alone_is_shown(launch: Launch) -> None:
    child = launch("wait,refuse")
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2, err
    assert err.splitlines()[1:] == ["zeromt: error: field: 1; allowed is 2"]


def test_a_signal_reaches_the_ranks_once(launch: Launch, workplace: Path) -> None:
    child = launch("wait,wait", "--max-restarts", "1")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    child.send_signal(signal.SIGINT)
    wait_for(folder / "signals-0", folder / "signals-1")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 75, err
    assert [(folder / f"signals-{rank}").read_text() for rank in (0, 1)] == ["SIGINT", "SIGINT"]
    assert "zeromt: SIGINT: asking the ranks to save and stop" in err
    assert "already stopping" in err
    assert "Traceback" not in err


def test_ranks_stop_when_the_launcher_is_killed(launch: Launch, workplace: Path) -> None:
    child = launch("wait,wait")
    folder = run_folder(workplace)
    wait_for(folder / "pid-0", folder / "pid-1")
    pids = [int((folder / f"pid-{rank}").read_text()) for rank in (0, 1)]
    child.kill()
    child.wait()
    wait_until(lambda: not any(map(is_running, pids)), "the end of the ranks")
    assert {*(folder / "signals-0").read_text().split()} == {"SIGTERM"}, "of torchrun, and of the kernel as it ends"


def test_ranks_start_again_once_those_of_a_killed_agent_have_ended(launch: Launch, workplace: Path) -> None:
    child = launch("orphan,orphan", "--max-restarts", "1")
    folder = run_folder(workplace)
    wait_for(folder / "begun-0", folder / "begun-1")
    os.kill(int((folder / "begun-0").read_text()), signal.SIGKILL)
    _, err = child.communicate(timeout=PATIENCE)
    assert "started beside ranks that still save" not in err
    assert child.returncode == 0, err
    assert "restart 1 of 1" in err


def test_closed_terminal_is_a_request_to_stop(workplace: Path) -> None:
    """What is written to it then fails, also from a signal handler."""
    folder = run_folder(workplace)
    variables = environment(FAKE="wait,wait", PYTHONPATH=os.pathsep.join([str(workplace / "fake"), str(ROOT)]))
    command = command_line(["launch", "local", "debug", "--nproc", "2"])
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(workplace)
        os.execve(command[0], command, variables)
    try:
        wait_for(folder / "pid-0", folder / "pid-1")
    finally:
        os.close(master)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert (folder / "signals-0").read_text() == "SIGTERM"


def test_run_folder_that_cannot_be_made(launch: Launch, workplace: Path) -> None:
    (workplace / "file").touch()
    child = launch("finish,finish", "output=file")
    _, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 2
    assert err.startswith("zeromt: error: output: 'file/debug/logs' cannot be made: Not a directory;")
    assert len(err.splitlines()) == 1
