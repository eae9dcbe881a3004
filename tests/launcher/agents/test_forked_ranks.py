"""Ranks that the agent forks: what they are to torchrun, to the kernel and to one another."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch.version

from launcher.agents import forked_ranks
from launcher.agents.forked_ranks import SWITCH, can_fork
from launcher.machine.process_title import ROOM, ROOM_LENGTH
from tests.conftest import is_running
from tests.launcher.clusters.local.test_launch import run_folder, wait_for
from tests.launcher.conftest import ROOT, environment
from trainer.runs.signals import STOP_SIGNALS

Launch = Callable[..., "subprocess.Popen[str]"]

# A module that a forked rank runs: it tells what it is, then does what TODO says.
MODULE = """
import json, os, signal, sys, threading, time
with open(os.environ["TELL"], "w") as file:
    json.dump({"argv": sys.argv[1:], "name": __name__, "environment": dict(os.environ),
               "session": os.getsid(0), "threads": threading.active_count(),
               "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))}, file)
os.write(1, f"out {os.environ['RANK']}\\n".encode())  # at once: the parent writes to the same pipe
os.write(2, f"err {os.environ['RANK']}\\n".encode())
todo = os.environ["TODO"]
if todo == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if todo == "sleep":
    time.sleep(60)
sys.exit(int(todo))
"""

# Forks as the agent does, and lets its standard input say what the ranks are to do.
PARENT = """
import json, os, subprocess, sys
from launcher.agents.forked_ranks import dismiss, fork_ranks
ranks = fork_ranks(int(sys.argv[1]))
print(json.dumps([rank.pid for rank in ranks]), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    rank = ranks[told["rank"]]
    if "environment" in told:
        environment = dict(os.environ) | told["environment"]
        rank.start([sys.executable, "-u", "-m", "ranks_module", *told["arguments"]], environment, told["logs"])
    try:
        code = rank.wait(told["seconds"])
    except subprocess.TimeoutExpired:
        code = None
    print(json.dumps(code), flush=True)
dismiss(ranks)
"""


class Parent:
    """A process with forked ranks."""

    def __init__(self, folder: Path, number: int = 2) -> None:
        (folder / "ranks_module.py").write_text(MODULE)
        paths = {"PYTHONPATH": f"{folder}:{ROOT}", ROOM: "." * ROOM_LENGTH}
        command = [sys.executable, "-c", PARENT, str(number)]
        self.process = subprocess.Popen(
            command, env=environment(**paths), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.pids: list[int] = json.loads(self._line())

    def tell(
        self,
        rank: int,
        *arguments: str,
        env: Mapping[str, str],
        seconds: float = 60,
        logs: tuple[str | None, ...] = (None, None),
    ) -> int | None:
        """Let a rank run; its exit code, or None where it still runs after so many seconds."""
        told = {"rank": rank, "arguments": arguments, "logs": logs, "seconds": seconds}
        return self._ask(told | {"environment": {"RANK": str(rank), **env}})

    def wait(self, rank: int, seconds: float) -> int | None:
        return self._ask({"rank": rank, "seconds": seconds})

    def _ask(self, told: Mapping[str, object]) -> int | None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        code: int | None = json.loads(self._line())
        return code

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = ""
        while not line.startswith(("[", "n", "-", *"0123456789")):  # what the ranks say comes between
            line = self.process.stdout.readline()
            assert line, "the parent ended"
        return line


def words(pid: int, file: str) -> list[str]:
    return Path(f"/proc/{pid}/{file}").read_text().rstrip("\0").split("\0")


def wait_for_end(*pids: int) -> None:
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "left behind"
        time.sleep(0.02)


def test_a_rank_is_what_a_new_process_would_be(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    logs = (str(tmp_path / "out"), str(tmp_path / "err"))
    for log in logs:
        Path(log).touch()
    told = {"TELL": str(tmp_path / "told"), "TODO": "3", "NAME": "Grüße \udcff"}
    assert parent.tell(1, "a b", "", "--c=ä", logs=logs, env=told) == 3
    found = json.loads((tmp_path / "told").read_text())
    assert found["argv"] == ["a b", "", "--c=ä"]
    assert found["name"] == "__main__"
    assert {name: found["environment"][name] for name in told} == told
    assert ROOM not in found["environment"]
    assert found["session"] == parent.pids[1]
    assert found["blocked"] == sorted(map(int, STOP_SIGNALS)), "until it can hear them"
    assert found["threads"] == 1
    assert [Path(log).read_text() for log in logs] == ["out 1\n", "err 1\n"]
    assert is_running(parent.pids[0]), "it waits on"
    parent.process.communicate("")
    assert parent.process.returncode == 0
    wait_for_end(*parent.pids)


def test_how_it_ends(tmp_path: Path) -> None:
    parent = Parent(tmp_path, 3)
    told = {"TELL": str(tmp_path / "told")}
    assert parent.tell(0, env=told | {"TODO": "die"}) == -signal.SIGKILL
    assert parent.tell(1, env=told | {"TODO": "sleep"}, seconds=0.5) is None
    os.killpg(parent.pids[1], signal.SIGKILL)  # torchrun ends groups
    assert parent.wait(1, 20) == -signal.SIGKILL
    os.kill(parent.pids[2], signal.SIGKILL)  # before it was told anything
    assert parent.tell(2, env=told | {"TODO": "0"}) == -signal.SIGKILL
    parent.process.communicate("")
    assert parent.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_ranks_without_a_parent_end(tmp_path: Path, number: signal.Signals) -> None:
    parent = Parent(tmp_path, 3)
    assert all(map(is_running, parent.pids))
    parent.process.send_signal(number)
    assert parent.process.wait(20) == -number
    wait_for_end(*parent.pids)


def test_what_others_see(tmp_path: Path) -> None:
    parent = Parent(tmp_path)
    told = {"TELL": str(tmp_path / "told"), "TODO": "sleep", "LONG": "x" * ROOM_LENGTH, "AFTER": "1"}
    assert parent.tell(0, "one", "two", seconds=0, env=told) is None
    wait_for(tmp_path / "told")
    assert words(parent.pids[0], "cmdline") == [sys.executable, "-u", "-m", "ranks_module", "one", "two"]
    seen = words(parent.pids[0], "environ")
    assert {"RANK=0", "TODO=sleep", "AFTER=1"} < set(seen)
    assert not any(word.startswith(("LONG=", ROOM)) for word in seen)
    assert f"PYTHONPATH={tmp_path}:{ROOT}" in seen, "what was there stays"

    (tmp_path / "told").unlink()
    assert parent.tell(1, "y" * 100_000, seconds=0, env=told) is None
    wait_for(tmp_path / "told")
    command = words(parent.pids[1], "cmdline")
    assert command[:4] == [sys.executable, "-u", "-m", "ranks_module"]
    assert set(command[4]) == {"y"}, "cut"
    assert len(json.loads((tmp_path / "told").read_text())["argv"][0]) == 100_000, "to others alone"
    for pid in parent.pids:
        os.kill(pid, signal.SIGKILL)
    parent.process.communicate("")


@pytest.mark.parametrize("forks", [True, False])
def test_launched(launch: Launch, workplace: Path, forks: bool) -> None:
    """The launcher's ranks look alike whether they are forked or not; of a fork, nothing shows that room was made."""
    folder = run_folder(workplace)
    child = launch("wait,wait", "--nproc", "2", **({} if forks else {SWITCH: "0"}))
    wait_for(folder / "pid-0", folder / "pid-1")
    agents = set()
    for rank in (0, 1):
        pid = int((folder / f"pid-{rank}").read_text())
        assert words(pid, "cmdline") == [sys.executable, "-u", "-m", "trainer", "debug"]
        seen = words(pid, "environ")
        assert {f"RANK={rank}", f"LOCAL_RANK={rank}", "WORLD_SIZE=2"} < set(seen)
        assert forks != any(word.startswith(ROOM) for word in seen)
        assert os.getsid(pid) == pid
        agents.add(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    (agent,) = agents
    assert "launcher.agents.agent" in words(agent, "cmdline")
    child.terminate()
    _, err = child.communicate(timeout=60)
    assert child.returncode == 75, err


def test_an_import_that_fails_is_the_ranks_to_tell(launch: Launch, workplace: Path) -> None:
    (workplace / "fake" / "trainer" / "build.py").write_text("raise RuntimeError('broken')")
    child = launch("finish,finish", "--nproc", "2")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "broken" not in err


def test_threads_forbid_it(tmp_path: Path) -> None:
    code = (
        "import threading\n"
        "from launcher.agents.forked_ranks import import_for_ranks\n"
        "before = import_for_ranks()\n"
        "end = threading.Event()\n"
        "threading.Thread(target=end.wait).start()\n"
        "print(before, import_for_ranks())\n"
        "end.set()\n"
    )
    env = environment(OMP_NUM_THREADS="2")  # as of one rank on two cores
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "True False\n", done.stderr


@pytest.mark.parametrize(
    ("cuda", "hip", "gpus", "environ", "forks"),
    [
        (None, None, 0, {}, True),
        (None, None, 4, {}, True),  # torch could not use them
        ("13.0", None, 0, {}, True),
        ("13.0", None, 1, {}, False),
        (None, "7.0", 0, {}, False),
        (None, None, 0, {SWITCH: "0"}, False),
        (None, None, 0, {SWITCH: "1", "DS_ACCELERATOR": "cpu"}, True),
        (None, None, 0, {"DS_ACCELERATOR": "hpu"}, False),
    ],
)
def test_where(
    monkeypatch: pytest.MonkeyPatch,
    cuda: str | None,
    hip: str | None,
    gpus: int,
    environ: Mapping[str, str],
    forks: bool,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(forked_ranks, "num_gpus", lambda _: gpus)
    assert can_fork(environ) is forks


def test_no_more_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError("Resource temporarily unavailable")

    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    monkeypatch.setattr(os, "fork", fork)
    assert forked_ranks.fork_ranks(2) == []
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
