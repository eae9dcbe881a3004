"""The watchdog, with a real process for every way in which a rank can be stuck."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import environment, is_running
from tests.waiting import PATIENCE, wait_until
from trainer.ranks.watchdog import Watchdog

RANK = """
import ctypes, os, re, signal, sys, threading, time
from pathlib import Path
from trainer.ranks.watchdog import Watchdog

watchdog = Watchdog(3)
watchdog.start()
watchdog.note_in(Path("stuck.log"))
print(watchdog._monitor, flush=True)
def wait_for_go():
    while not Path("go").exists(): time.sleep(0.01)
"""

GIL_HELD_IN_C = "ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)"
GIL_HELD_BY_RE = "re.match('(a+)+$', 'a' * 60 + 'b')"
ASLEEP = "time.sleep(100)"
COMPUTING = "while True: pass"
DEADLOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"

Rank = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    """Start a process with a watchdog that does what its code says."""
    with starting(tmp_path) as start:
        yield start


@contextlib.contextmanager
def starting(folder: Path) -> Iterator[Rank]:
    running: list[subprocess.Popen[str]] = []

    def start(code: str, **extra: str) -> "subprocess.Popen[str]":
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK + code],
                cwd=folder,
                env=environment() | extra,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def monitor_of(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("hang", [GIL_HELD_IN_C, GIL_HELD_BY_RE, ASLEEP, COMPUTING])
def test_stuck_rank_is_shown_named_and_ended(rank: Rank, tmp_path: Path, hang: str) -> None:
    process = rank(f"watchdog.enter('save', 0.6, 120)\n{hang}")
    monitor = monitor_of(process)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert 'File "<string>", line' in err  # the stack of the main thread
    line = err.splitlines()[-1]
    assert re.fullmatch(
        r"zeromt: rank 3 is stuck: activity 'save' of step 120 began \d+ s ago; "
        r"the limit is supervision.save_minutes=0.01",
        line,
    )
    wait_until(lambda: not is_running(monitor))
    assert (tmp_path / "stuck.log").read_text().splitlines() == [line]


def test_stacks_of_all_threads_by_hand_without_harm(rank: Rank) -> None:
    process = rank(
        "def in_a_thread(): time.sleep(100)\n"
        "threading.Thread(target=in_a_thread, daemon=True).start()\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\nprint('unharmed')"
    )
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "unharmed" in out
    assert "in in_a_thread" in err
    assert "in <module>" in err


def test_stopped_rank_is_ended(rank: Rank) -> None:
    process = rank("watchdog.enter('step', 5, 7)\nprint('in', flush=True)\ntime.sleep(100)")
    monitor_of(process)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert "activity 'step' of step 7" in err
    assert err.endswith("the process is stopped (SIGSTOP)\n")


def who_waits_for_others_is_ended_later(rank: Rank, folder: Path, hang: str) -> None:
    """Both are stuck from the same moment: the cause, in step 1, gets no grace."""
    both = [rank(f"wait_for_go()\nwatchdog.enter('step', 0.5, {n})\n{do}") for n, do in ((1, ASLEEP), (2, hang))]
    for process in both:
        monitor_of(process)
    (folder / "go").touch()
    for process in both:
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
    assert re.findall(r"of step (\d)", (folder / "stuck.log").read_text()) == ["1", "2"]


@pytest.mark.slow
def test_deadlock_is_ended_later(rank: Rank, tmp_path: Path) -> None:
    who_waits_for_others_is_ended_later(rank, tmp_path, DEADLOCK)


def activities_within_their_limits_are_left_alone(rank: Rank, folder: Path) -> None:
    """Each takes a fortieth of its limit, all of them longer than one has, and so does what is no activity."""
    process = rank(
        "for step in range(60):\n"
        "    watchdog.enter('step', 4, step)\n    time.sleep(0.1)\n"
        "watchdog.leave()\ntime.sleep(6)\n"
        "watchdog.close()\nwatchdog.enter('step', 0.1, 1)\ntime.sleep(1)\nprint('done')"
    )
    monitor = monitor_of(process)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "done\n", "")
    assert not is_running(monitor)


def test_time_spent_before_counts(rank: Rank) -> None:
    process = rank("watchdog.enter('step', 100, 5, spent=100)\ntime.sleep(100)")
    _, err = process.communicate(timeout=PATIENCE)
    assert re.search(r"activity 'step' of step 5 began 1\d\d s ago", err)


def test_rank_whose_stderr_nobody_reads_is_ended(rank: Rank) -> None:
    process = rank("watchdog.enter('step', 0.3, 1)\nos.write(2, b'x' * 10_000_000)")
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL


def suspended_job_is_no_stuck_job(rank: Rank, folder: Path) -> None:
    """As `scontrol suspend` does it: every process is stopped, the monitor too."""
    process = rank("watchdog.enter('step', 8, 1)\nprint('in', flush=True)\nwait_for_go()\nprint('done')")
    monitor = monitor_of(process)
    assert process.stdout is not None
    process.stdout.readline()
    for pid in (monitor, process.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(9)
    for pid in (monitor, process.pid):
        os.kill(pid, signal.SIGCONT)
    time.sleep(1)  # the monitor looks a few times
    (folder / "go").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "done\n", "")


LONG: dict[str, Callable[[Rank, Path], None]] = {
    "who waits for others is ended later": lambda rank, folder: who_waits_for_others_is_ended_later(
        rank, folder, f"with watchdog.waiting(): {ASLEEP}"
    ),
    "activities within their limits are left alone": activities_within_their_limits_are_left_alone,
    "a suspended job is no stuck job": suspended_job_is_no_stuck_job,
}
"""They wait for seconds, and do so at the same time."""


@pytest.fixture(scope="module")
def long_ones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, "Future[None]"]:
    """What became of each."""

    def look(name: str) -> None:
        folder = tmp_path_factory.mktemp("long")
        with starting(folder) as start:
            LONG[name](start, folder)

    with ThreadPoolExecutor(len(LONG)) as pool:
        return {name: pool.submit(look, name) for name in LONG}


@pytest.mark.parametrize("name", LONG)
def test_what_takes_long(name: str, long_ones: "dict[str, Future[None]]") -> None:
    long_ones[name].result()


@pytest.mark.parametrize("ending", ["sys.exit(4)", "os._exit(4)", "os.kill(os.getpid(), 9)", "raise SystemExit(4)"])
def test_monitor_ends_with_its_rank(rank: Rank, ending: str) -> None:
    process = rank(ending)
    monitor = monitor_of(process)
    process.communicate(timeout=PATIENCE)  # until the pipes are closed, which the monitor holds too
    assert process.returncode in (4, -9)
    wait_until(lambda: not is_running(monitor))


def test_monitor_minds_no_signals(rank: Rank, tmp_path: Path) -> None:
    process = rank("wait_for_go()\nwatchdog.enter('step', 0.1, 1)\ntime.sleep(100)")
    monitor = monitor_of(process)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(monitor, number)
    (tmp_path / "go").touch()
    assert process.wait(timeout=PATIENCE) == -signal.SIGKILL


def orphaned(tmp_path: Path, code: str) -> list[int]:
    """Start a rank below an agent, kill the agent; the pids of rank and monitor, which lived until then."""
    code = RANK + code + "\nPath('pids').write_text(f'{os.getpid()} {watchdog._monitor}')\ntime.sleep(1000)"
    agent = (
        "import subprocess, sys, time\nfrom pathlib import Path\n"
        f"subprocess.Popen([sys.executable, '-c', {code!r}])\ntime.sleep(1000)"
    )
    variables = environment() | {"TORCHELASTIC_RUN_ID": "x"}
    process = subprocess.Popen([sys.executable, "-c", agent], cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL)
    pids = tmp_path / "pids"
    wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    time.sleep(0.6)  # two looks: a rank with its agent is left alone
    found = [int(pid) for pid in pids.read_text().split()]
    assert all(map(is_running, found))
    process.kill()
    process.wait()
    return found


def test_rank_that_outlives_its_agent_ends(tmp_path: Path) -> None:
    """By the monitor alone: the rank has not asked the kernel for it. It is in its setup: there is nothing to save."""
    found = orphaned(tmp_path, "watchdog.limit_save(60.0)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)")
    wait_until(lambda: not any(map(is_running, found)))


def test_orphan_has_the_time_of_a_save_and_no_more(tmp_path: Path) -> None:
    code = (
        "signal.signal(signal.SIGTERM, lambda *_: Path('asked').touch())\n"
        "watchdog.limit_save(2.0)\nwatchdog.enter('step', 100.0, 5)"
    )
    found = orphaned(tmp_path, code)
    killed = time.monotonic()
    wait_until(lambda: (tmp_path / "asked").exists())
    while time.monotonic() < killed + 1.0:
        assert is_running(found[0]), "ended although it may still be saving"
        time.sleep(0.05)
    wait_until(lambda: not any(map(is_running, found)))
    assert time.monotonic() > killed + 1.9


def test_switched_off() -> None:
    watchdog = Watchdog(0, on=False)
    watchdog.start()
    watchdog.enter("step", 0.0, 1)
    with watchdog.waiting():
        pass
    watchdog.leave()
    watchdog.close()
    children = [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]
    assert not [pid for pid in children if "zeromt" in Path(f"/proc/{pid}/comm").read_text()]
