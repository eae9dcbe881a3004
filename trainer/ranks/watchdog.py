"""A second process beside every rank, which kills the rank when one of its activities exceeds its time limit.

It also leaves a note of a rank that was killed or crashed, which could not leave one itself (`trainer.runs.failure`).

A thread could not do this: a hang inside a C extension may hold the GIL, and a stopped process runs no thread at all.
The monitor is forked before the rank does anything else and only shares one page of memory with it. It must be started
while the process has one thread and little memory: first thing in `trainer/__main__.py`.

It relies on two facts: SIGKILL ends stopped processes too, and faulthandler's handler is C code that runs without the
GIL. Linux only.
"""

import contextlib
import faulthandler
import functools
import mmap
import os
import select
import signal
import socket
import struct
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from configs.process import flight_recorder, positions
from configs.process.files.inside import opened
from configs.process.kernel import PR_SET_NAME, parent_of, prctl, state_of, wait_channel_of
from configs.process.positions import Comparison, Position
from configs.process.signals import agent_pid
from trainer.runs.failure import Failure, leave_note
from trainer.runs.layout import FAILURES
from trainer.runs.status import LAUNCH_ID

STACKS_SIGNAL = signal.SIGUSR2
"""Signal on which a rank writes the stacks of all its threads to stderr; also for `kill -USR2` by hand."""
SETUP_SECONDS = 3600.0
"""Time limit from the start of the process until the configuration, which has its own, is read."""
SETTINGS = {
    "setup": "setup_minutes",
    "data": "step_minutes",
    "step": "step_minutes",
    "save": "save_minutes",
    "evaluation": "evaluation_minutes",
    "shutdown": "setup_minutes",
}
"""The setting of `supervision` that limits an activity."""

_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 5.0
"""Seconds by which a rank that waits for others is killed later than the one that keeps them waiting, the cause. A rank
that may be waiting for one further behind gets as much again."""
_DUMP_SECONDS = 1.0
"""Seconds for writing the stacks."""
_TRACE_SECONDS = 4.0
"""Seconds for NCCL's flight recorder, which checks once a second for a request."""
_SUSPENDED_SECONDS = 5.0
"""Seconds of delay of the monitor's own loop that mean that the whole job, with its activities, was suspended."""

_RECORD = struct.Struct("=ddq16s")  # began, seconds, step, activity
_WAITING = _RECORD.size
_SAVE_SECONDS = struct.Struct("=d")
_SAVE = _WAITING + 1
_POSITION = _SAVE + _SAVE_SECONDS.size
_NOTE = _POSITION + positions.SIZE
_NOTE_LENGTH = struct.Struct("=H")
_IDLE = b"\0" * _RECORD.size


class Watchdog:
    """The rank's side: records which activity it is in, and since when.

    Every method is cheap and does nothing before `start` or after `close`. Times are of the monotonic clock, which is
    the same for all processes of a machine.
    """

    def __init__(self, rank: int, *, on: bool = True) -> None:
        """Create a watchdog; nothing runs yet.

        Args:
            rank: for the messages.
            on: if False, no method does anything.
        """
        self._rank = rank
        self._on = on
        self._memory: mmap.mmap | None = None
        self._owner = self._monitor = 0
        self.started = time.time()
        """Seconds since the epoch at which the process began its work."""

    def start(self) -> None:
        """Fork the monitor, and enter the activity `setup`. Must be called while the process has one thread."""
        if not self._on or self._memory is not None:
            return
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._owner = os.getpid()
        faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True)
        self.enter("setup", SETUP_SECONDS, 0)
        monitor = _Monitor(self._memory, rank=self._rank, pid=self._owner, agent=agent_pid())
        # The rank handles signals to the process group or the whole job; the monitor blocks them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._monitor = os.fork()
            if self._monitor == 0:
                monitor.run_and_exit()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def enter(self, activity: str, seconds: float, step: int, *, spent: float = 0.0) -> None:
        """Begin an activity, ending the one before.

        Args:
            activity: its name, at most 16 letters; if it is in SETTINGS, messages name the setting.
            seconds: its limit.
            step: the update that it belongs to; 0 for none.
            spent: seconds of the limit already used, for an activity that continues after a nested one.
        """
        if self._memory is not None:
            self._memory[: _RECORD.size] = _RECORD.pack(time.monotonic() - spent, seconds, step, activity.encode())

    def reach(self, position: Position) -> None:
        """Record how far the rank has come: of several stuck ranks, the one furthest behind is the cause."""
        if self._memory is not None:
            self._memory[_POSITION : _POSITION + positions.SIZE] = position.pack()

    def leave(self) -> None:
        """End the activity: there is no time limit until the next."""
        if self._memory is not None:
            self._memory[: _RECORD.size] = _IDLE

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """In this block the rank waits for others: if the activity's time is up, it is not the cause."""
        if self._memory is None:
            yield
            return
        self._memory[_WAITING] = 1
        try:
            yield
        finally:
            self._memory[_WAITING] = 0

    def limit_save(self, seconds: float) -> None:
        """Give the rank this many seconds to save and end once torchrun is gone; without this call, none."""
        if self._memory is not None:
            self._memory[_SAVE : _SAVE + _SAVE_SECONDS.size] = _SAVE_SECONDS.pack(seconds)

    def note_in(self, path: Path) -> None:
        """Make the monitor also append its message to a file, for the launcher."""
        content = os.fsencode(path.absolute())
        if self._memory is not None and len(content) < mmap.PAGESIZE - _NOTE - _NOTE_LENGTH.size:
            self._memory[_NOTE : _NOTE + _NOTE_LENGTH.size + len(content)] = _NOTE_LENGTH.pack(len(content)) + content

    def close(self) -> None:
        """End the monitor: there are no time limits any more, and how this process ends is its own affair."""
        if self._memory is None or self._owner != os.getpid():
            return
        self._memory = None
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._monitor, signal.SIGKILL)
            os.waitpid(self._monitor, 0)


@functools.cache
def process_watchdog() -> Watchdog:
    """This process's watchdog; torchrun gives the rank's number."""
    rank = os.environ.get("RANK", "")
    flight_recorder.choose_pipe(os.environ)
    return Watchdog(int(rank) if rank.isdecimal() else 0)


@dataclass(kw_only=True, slots=True, frozen=True)
class _Record:
    """The current activity of the rank, as the monitor reads it."""

    activity: str
    step: int
    began: float
    seconds: float

    def message(self, now: float, state: str) -> str:
        """The message with activity and limit."""
        of_step = f" of step {self.step}" if self.step else ""
        setting = SETTINGS.get(self.activity)
        limit = f"supervision.{setting}={self.seconds / 60:.4g}" if setting else f"{self.seconds:.4g} s"
        stopped = "; the process is stopped (SIGSTOP)" if state in ("T", "t") else ""
        return (
            f"is stuck: activity {self.activity!r}{of_step} began {now - self.began:.0f} s ago; "
            f"the limit is {limit}{stopped}"
        )


class _Monitor:
    """The other side: watches the page, and the rank's state in the kernel."""

    def __init__(self, memory: mmap.mmap, *, rank: int, pid: int, agent: int | None) -> None:
        self._memory = memory
        self._rank = rank
        self._pid = pid
        self._agent = agent
        self._looked = time.monotonic()
        self._alive = time.time()
        """When the rank was last seen."""
        self._orphaned: float | None = None
        """The time at which torchrun was first seen to be gone."""
        self._comparison: Comparison | None = None
        """The comparison with other stuck ranks; None while this rank is not stuck."""
        self._launch_id = os.environ.get(LAUNCH_ID)
        self._pipe = flight_recorder.pipe_of(os.environ, rank)

    def run_and_exit(self) -> NoReturn:
        """Watch until the rank has ended, then exit without running the interpreter's exit code."""
        try:
            prctl(PR_SET_NAME, b"zeromt-watchdog")
            self._note_end(self._watch() or "ended without a word: it was killed, or it crashed")
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _watch(self) -> str | None:
        """Watch until the rank has ended; returns why this process has ended it, if it has."""
        last, suspended = None, 0.0
        while os.getppid() == self._pid:
            self._alive = time.time()
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            late, self._looked = now - self._looked - _LOOK_SECONDS, now
            record = self._read()
            if self._is_orphan_for_too_long(record, now):
                return self._end("ends: torchrun, which started it, is gone")
            is_new = record != last
            if is_new:
                last, suspended = record, 0.0
                self._stop_comparing()
            if record is None:
                continue
            if late > _SUSPENDED_SECONDS:
                suspended += min(late, now - record.began)
            if is_new:  # a state counts only if seen twice: the rank may have been in the middle of writing it
                continue
            over = now - record.began - suspended - record.seconds
            if over > 0 and over > self._grace() and (why := self._end_stuck(record)):
                return why
        return None

    def _grace(self) -> float:
        """Seconds that a rank which has exceeded its limit still gets."""
        if not self._is_waiting():
            return 0.0
        if self._comparison is None and (folder := self._failures()) is not None:
            self._comparison = Comparison(folder, self._rank, self._position())
        is_behind_another = self._comparison is not None and self._comparison.behind is not None
        return (1 + is_behind_another) * _GRACE_SECONDS

    def _stop_comparing(self) -> None:
        if self._comparison is not None:
            self._comparison.end()
            self._comparison = None

    def _position(self) -> Position:
        return Position.unpack(self._memory[_POSITION : _POSITION + positions.SIZE])

    def _where(self) -> str:
        """The part of a message about the position of this rank, and of one further behind."""
        position, told = self._position(), ""
        if position.update:
            told = f"; it is at {position}"
        if self._comparison is not None and self._comparison.behind is not None:
            rank, other = self._comparison.behind
            told += f"; rank {rank} is further behind, at {other}"
        return told

    def _failures(self) -> Path | None:
        """The folder for failures of this launch; None before the run has a folder, and without a launcher."""
        note = self._note_path()
        return None if note is None or self._launch_id is None else note.parent / FAILURES / self._launch_id

    def _note_path(self) -> Path | None:
        length = _NOTE_LENGTH.unpack_from(self._memory, _NOTE)[0]
        begin = _NOTE + _NOTE_LENGTH.size
        return Path(os.fsdecode(self._memory[begin : begin + length])) if length else None

    def _is_orphan_for_too_long(self, record: _Record | None, now: float) -> bool:
        """Whether torchrun is gone, and the rank has not saved and ended within the time allowed for a save.

        The kernel has asked it to: see `end_with_parent`. During setup there is nothing to save.
        """
        if self._agent is None or parent_of(self._pid) in (self._agent, None):
            return False
        if self._orphaned is None:
            self._orphaned = now
            os.kill(self._pid, signal.SIGTERM)  # again, in case the C library could not arrange for the kernel's signal
        if record is not None and record.activity == "setup":
            return True
        seconds: float = _SAVE_SECONDS.unpack_from(self._memory, _SAVE)[0]
        return now - self._orphaned >= seconds

    def _end_stuck(self, record: _Record) -> str | None:
        """Print the rank's stacks and kill it, unless it makes progress at the last moment; returns why."""
        state = state_of(self._pid)
        if state not in ("T", "t"):
            os.kill(self._pid, STACKS_SIGNAL)
            time.sleep(_DUMP_SECONDS)
            if self._read() != record:
                return None
            if self._pipe is not None and (folder := self._failures()) is not None:
                flight_recorder.ask(self._pipe, folder, self._rank, seconds=_TRACE_SECONDS)
        why = self._end(record.message(time.monotonic(), state) + self._where())
        flight_recorder.remove_pipe(os.environ, self._rank)
        return why

    def _end(self, why: str) -> str:
        """Kill the rank, and say why on stderr and in the run's folder; returns it."""
        line = f"zeromt: rank {self._rank} {why}\n".encode()
        # Even if stderr is blocked or closed, the rank must be killed.
        if select.select([], [2], [], 1.0)[1]:
            with contextlib.suppress(OSError):
                os.write(2, line)
        if os.getppid() == self._pid:
            os.kill(self._pid, signal.SIGKILL)
        if (note := self._note_path()) is not None:
            with contextlib.suppress(OSError), opened(note, "ab") as file:
                file.write(line)
        return why

    def _note_end(self, why: str) -> None:
        """Leave the rank's note, dated when it was last seen: before others can have noticed that it is gone."""
        folder, note = self._failures(), self._note_path()
        if folder is None or note is None or (folder / f"rank-{self._rank}.json").exists():
            return
        message = why.removeprefix("is ")
        failure = Failure(rank=self._rank, host=socket.gethostname(), time=self._alive, message=message)
        leave_note(note.parent, folder.name, failure)

    def _read(self) -> _Record | None:
        content = self._memory[: _RECORD.size]
        if content == _IDLE:
            return None
        began, seconds, step, activity = _RECORD.unpack(content)
        return _Record(
            activity=activity.rstrip(b"\0").decode(errors="replace"), step=step, began=began, seconds=seconds
        )

    def _is_waiting(self) -> bool:
        """Whether the rank seems to wait for others: it says so, or it sleeps until a thread wakes it.

        Ranks that wait in gloo sleep like this. With a GPU, a rank may wait, spinning, wherever it asks the device for
        something. A rank that is stopped, computing, or blocked otherwise is a cause.
        """
        state = state_of(self._pid)
        if state in ("T", "t"):
            return False
        if self._memory[_WAITING] or self._position().in_device:
            return True
        return state == "S" and "futex" in wait_channel_of(self._pid)
