"""A second process beside every rank, which ends the rank when a phase of its work is over its time limit.

A thread could not: a hang inside a C extension may hold the GIL, and a stopped process runs no thread at all. The
monitor is forked before the rank does anything else, shares one page of memory with it, and needs nothing more of it.
It must be started while the process has one thread and little memory of its own: first thing in `trainer/__main__.py`.

Kernel facts that it leans on: SIGKILL ends stopped processes too; faulthandler's handler is C code that runs without
the GIL. Linux only.
"""

import contextlib
import faulthandler
import functools
import mmap
import os
import select
import signal
import struct
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainer.runs.layout import FAILURES
from trainer.runs.process import flight_recorder, positions
from trainer.runs.process.kernel import parent_of, prctl, state_of, wait_channel_of
from trainer.runs.process.positions import Comparison, Position
from trainer.runs.signals import agent_pid
from trainer.runs.status import LAUNCH_ID

STACKS_SIGNAL = signal.SIGUSR2
"""Makes a rank write the stacks of all its threads to stderr; `kill -USR2` by hand does the same."""
SETUP_SECONDS = 3600.0
"""Limit from the start of the process until the configuration is read and says its own."""
SETTINGS = {
    "setup": "setup_minutes",
    "data": "step_minutes",
    "step": "step_minutes",
    "save": "save_minutes",
    "evaluation": "evaluation_minutes",
    "shutdown": "setup_minutes",
}
"""The setting of `supervision` that limits a phase."""

_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 5.0
"""A rank that waits for others is ended so much later than one that keeps them waiting: it is not the cause. One that
may wait, and that another rank is behind, is ended later by as much again."""
_DUMP_SECONDS = 1.0
"""Time for the stacks to be written."""
_TRACE_SECONDS = 4.0
"""Time for NCCL's flight recorder, which looks once a second whether it is asked."""
_SUSPENDED_SECONDS = 5.0
"""A look so late means that the whole job was suspended, and that its phases were too."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15

_RECORD = struct.Struct("=ddq16s")  # began, seconds, step, phase
_WAITING = _RECORD.size
_SAVE_SECONDS = struct.Struct("=d")
_SAVE = _WAITING + 1
_POSITION = _SAVE + _SAVE_SECONDS.size
_NOTE = _POSITION + positions.SIZE
_NOTE_LENGTH = struct.Struct("=H")
_IDLE = b"\0" * _RECORD.size


class Watchdog:
    """The rank's side: says which phase it is in, and since when.

    Every method is cheap, and does nothing before `start` or after `close`. Times are of the monotonic clock, which
    all processes of a machine share.
    """

    def __init__(self, rank: int, *, on: bool = True) -> None:
        """Make one; nothing runs yet.

        Args:
            rank: for the messages.
            on: False makes every method do nothing.
        """
        self._rank = rank
        self._on = on
        self._memory: mmap.mmap | None = None
        self._owner = self._monitor = 0
        self.started = time.time()
        """Seconds since the epoch at which the process began its work."""

    def start(self) -> None:
        """Fork the monitor, and enter the phase `setup`. Call it while the process has one thread."""
        if not self._on or self._memory is not None:
            return
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._owner = os.getpid()
        faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True)
        self.enter("setup", SETUP_SECONDS, 0)
        monitor = _Monitor(self._memory, rank=self._rank, pid=self._owner, agent=agent_pid())
        # Signals to the group, or to every process of a job, are the rank's to answer: the monitor keeps them blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._monitor = os.fork()
            if self._monitor == 0:
                monitor.run_and_exit()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def enter(self, phase: str, seconds: float, step: int, *, spent: float = 0.0) -> None:
        """Begin a phase, in place of the one before.

        Args:
            phase: its name, at most 16 letters; one of SETTINGS, for a message that names the setting.
            seconds: its limit.
            step: the update that it belongs to; 0 for none.
            spent: seconds already used of the limit, for a phase that goes on after another inside it.
        """
        if self._memory is not None:
            record = _RECORD.pack(time.monotonic() - spent, seconds, step, phase.encode())
            self._memory[: _RECORD.size] = record

    def reach(self, position: Position) -> None:
        """Say how far the rank has come: of several that are stuck, the one furthest behind is the cause."""
        if self._memory is not None:
            self._memory[_POSITION : _POSITION + positions.SIZE] = position.pack()

    def leave(self) -> None:
        """End the phase: nothing is limited until the next."""
        if self._memory is not None:
            self._memory[: _RECORD.size] = _IDLE

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, this rank waits for the others: it is not the cause when the phase's time is up."""
        if self._memory is None:
            yield
            return
        self._memory[_WAITING] = 1
        try:
            yield
        finally:
            self._memory[_WAITING] = 0

    def limit_save(self, seconds: float) -> None:
        """Leave the rank so much time to save and end once torchrun is gone; none where this was not called."""
        if self._memory is not None:
            self._memory[_SAVE : _SAVE + _SAVE_SECONDS.size] = _SAVE_SECONDS.pack(seconds)

    def note_in(self, path: Path) -> None:
        """Let the monitor append its message to a file as well, for whoever started the run."""
        content = os.fsencode(path.absolute())
        if self._memory is not None and len(content) < mmap.PAGESIZE - _NOTE - _NOTE_LENGTH.size:
            self._memory[_NOTE : _NOTE + _NOTE_LENGTH.size + len(content)] = _NOTE_LENGTH.pack(len(content)) + content

    def close(self) -> None:
        """End the monitor. Nothing is limited from here on."""
        if self._memory is None or self._owner != os.getpid():
            return
        self._memory = None
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._monitor, signal.SIGKILL)
            os.waitpid(self._monitor, 0)


@functools.cache
def process_watchdog() -> Watchdog:
    """The one of this process; the rank's number is torchrun's."""
    rank = os.environ.get("RANK", "")
    return Watchdog(int(rank) if rank.isdecimal() else 0)


@dataclass(kw_only=True, slots=True, frozen=True)
class _Record:
    """A phase that the rank is in."""

    phase: str
    step: int
    began: float
    seconds: float

    def message(self, rank: int, now: float, state: str) -> str:
        """The line that names rank, phase and limit."""
        of_step = f" of step {self.step}" if self.step else ""
        setting = SETTINGS.get(self.phase)
        limit = f"supervision.{setting}={self.seconds / 60:.4g}" if setting else f"{self.seconds:.4g} s"
        stopped = "; the process is stopped (SIGSTOP)" if state in ("T", "t") else ""
        return (
            f"zeromt: rank {rank} is stuck: phase {self.phase!r}{of_step} began {now - self.began:.0f} s ago; "
            f"the limit is {limit}{stopped}"
        )


class _Monitor:
    """The other side: looks at the page, and at the rank as the kernel sees it."""

    def __init__(self, memory: mmap.mmap, *, rank: int, pid: int, agent: int | None) -> None:
        self._memory = memory
        self._rank = rank
        self._pid = pid
        self._agent = agent
        self._looked = time.monotonic()
        self._orphaned: float | None = None
        """When torchrun was first seen to be gone."""
        self._comparison: Comparison | None = None
        """With other ranks that are stuck; None while this one is not."""
        self._launch_id = os.environ.get(LAUNCH_ID)
        self._pipe = flight_recorder.pipe_of(os.environ, pid, rank)

    def run_and_exit(self) -> NoReturn:
        """Watch until the rank has ended, then exit without a trace of the rank's interpreter."""
        try:
            # Should the rank die in any way, this process does too. The loop is for where that is not to be had.
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            prctl(_PR_SET_NAME, b"zeromt-watchdog")
            self._watch()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _watch(self) -> None:
        last, suspended = None, 0.0
        while os.getppid() == self._pid:
            time.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            late, self._looked = now - self._looked - _LOOK_SECONDS, now
            record = self._read()
            if self._is_orphan_for_too_long(record, now):
                self._end(f"zeromt: rank {self._rank} ends: torchrun, which started it, is gone")
                return
            is_new = record != last
            if is_new:
                last, suspended = record, 0.0
                self._stop_comparing()
            if record is None:
                continue
            if late > _SUSPENDED_SECONDS:
                suspended += min(late, now - record.began)
            if is_new:  # only what was seen twice counts: the rank may have been in the middle of writing
                continue
            over = now - record.began - suspended - record.seconds
            if over > 0 and over > self._grace() and self._end_stuck(record):
                return

    def _grace(self) -> float:
        """Seconds beyond its limit that are left to the rank, which is over it."""
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
        """What a message says of the rank's position, and of the one that is behind it."""
        position, told = self._position(), ""
        if position.update:
            told = f"; it is at {position}"
        if self._comparison is not None and self._comparison.behind is not None:
            rank, other = self._comparison.behind
            told += f"; rank {rank} is further behind, at {other}"
        return told

    def _failures(self) -> Path | None:
        """The folder of this start's failures; None before the run has one, and without a launcher."""
        note = self._note_path()
        return None if note is None or self._launch_id is None else note.parent / FAILURES / self._launch_id

    def _note_path(self) -> Path | None:
        length = _NOTE_LENGTH.unpack_from(self._memory, _NOTE)[0]
        begin = _NOTE + _NOTE_LENGTH.size
        return Path(os.fsdecode(self._memory[begin : begin + length])) if length else None

    def _is_orphan_for_too_long(self, record: _Record | None, now: float) -> bool:
        """Whether torchrun is gone and the rank has not saved and ended within the time that a save may take.

        The kernel has asked it to: see `end_with_parent`. In a setup there is nothing to save.
        """
        if self._agent is None or parent_of(self._pid) in (self._agent, None):
            return False
        if self._orphaned is None:
            self._orphaned = now
            os.kill(self._pid, signal.SIGTERM)  # as the kernel has, where the C library could ask it to
        if record is not None and record.phase == "setup":
            return True
        seconds: float = _SAVE_SECONDS.unpack_from(self._memory, _SAVE)[0]
        return now - self._orphaned >= seconds

    def _end_stuck(self, record: _Record) -> bool:
        """Show the rank's stacks and end it, unless it goes on at the last moment."""
        state = state_of(self._pid)
        if state not in ("T", "t"):
            os.kill(self._pid, STACKS_SIGNAL)
            time.sleep(_DUMP_SECONDS)
            if self._read() != record:
                return False
            if (folder := self._failures()) is not None:
                flight_recorder.ask(self._pipe, folder, self._rank, seconds=_TRACE_SECONDS)
        self._end(record.message(self._rank, time.monotonic(), state) + self._where())
        with contextlib.suppress(OSError):
            self._pipe.unlink(missing_ok=True)
        return True

    def _end(self, message: str) -> None:
        line = message.encode() + b"\n"
        # Nobody may be reading stderr; that must not keep the rank alive.
        if select.select([], [2], [], 1.0)[1]:
            with contextlib.suppress(OSError):
                os.write(2, line)
        prctl(_PR_SET_PDEATHSIG, 0)
        if os.getppid() == self._pid:
            os.kill(self._pid, signal.SIGKILL)
        if (note := self._note_path()) is not None:
            with contextlib.suppress(OSError), note.open("ab") as file:
                file.write(line)

    def _read(self) -> _Record | None:
        content = self._memory[: _RECORD.size]
        if content == _IDLE:
            return None
        began, seconds, step, phase = _RECORD.unpack(content)
        return _Record(phase=phase.rstrip(b"\0").decode(errors="replace"), step=step, began=began, seconds=seconds)

    def _is_waiting(self) -> bool:
        """Whether the rank waits for others, as far as can be told: it says so, or sleeps until a thread wakes it.

        gloo's callers sleep so. On a GPU it may wait wherever the device is asked for something, and spins meanwhile.
        A stopped, computing, or otherwise blocked rank is a cause.
        """
        state = state_of(self._pid)
        if state in ("T", "t"):
            return False
        if self._memory[_WAITING] or self._position().in_device:
            return True
        return state == "S" and "futex" in wait_channel_of(self._pid)
