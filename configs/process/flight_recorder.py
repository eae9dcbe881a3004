"""NCCL's flight recorder: which collectives of a rank have begun and ended, to analyse a hang.

It is part of torch (`ProcessGroupNCCL.hpp`, `FlightRecorder.hpp` of torch 2.13), which writes a file when a collective
times out or somebody writes to a pipe; `torchfrtrace` reads the files of all ranks. Its variables are set here unless
the user has set them. Without torch.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from configs.process.environment import PRIVATE
from configs.process.gpus import DRIVER

ENTRIES = "2000"
"""Number of collectives recorded; torch's default."""
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""The newer name of the variable, and its older one."""
_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_PREFIX = "nccl-trace-rank-"
_PIPE_PREFIX = "nccl-"
_LOOK_SECONDS = 0.1
_SETTLE_SECONDS = 0.5
"""Seconds without growth after which a file is complete."""


def switch_on(environ: MutableMapping[str, str]) -> None:
    """Switch recording and writing on request on; must be called before a group over NCCL is made.

    Args:
        environ: of this process.
    """
    if not any(name in environ for name in _SIZES):
        environ.update(dict.fromkeys(_SIZES, ENTRIES))
    environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")


def choose_pipe(environ: MutableMapping[str, str]) -> None:
    """Choose the pipe's place, before the watchdog's monitor is started; torch makes it when a group over NCCL is made.

    It is in a folder that no other user can enter: in /tmp, another could have made one of the same name before.

    Args:
        environ: of this process.
    """
    if _PIPE not in environ and PRIVATE in environ:
        environ[_PIPE] = str(Path(environ[PRIVATE]) / _PIPE_PREFIX)
    elif _PIPE not in environ and DRIVER.is_dir():  # a rank that no launcher has started
        with contextlib.suppress(OSError):
            environ[_PIPE] = str(Path(tempfile.mkdtemp(prefix="zeromt-")) / _PIPE_PREFIX)


def keep_in(folder: Path, environ: MutableMapping[str, str]) -> None:
    """Make the recorder write to a folder, which is created; must be called before the first collective times out.

    Args:
        folder: of the failures of this start of the ranks.
        environ: of this process.
    """
    if not any(name in environ for name in _FILES):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            environ.update(dict.fromkeys(_FILES, str(folder.absolute() / _PREFIX)))


def remove_pipe(environ: Mapping[str, str], rank: int) -> None:
    """Remove this process's pipe, which torch leaves behind, and a folder that was made for it.

    Args:
        environ: of this process.
        rank: its number.
    """
    if (pipe := pipe_of(environ, rank)) is None:
        return
    with contextlib.suppress(OSError):
        pipe.unlink(missing_ok=True)
        if PRIVATE not in environ and pipe.name.startswith(_PIPE_PREFIX):
            pipe.parent.rmdir()


def leave_nothing(folder: Path) -> None:
    """Remove the empty folder of a run that ended well."""
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def pipe_of(environ: Mapping[str, str], rank: int) -> Path | None:
    """The pipe through which a rank is asked to write; None if it has none.

    Args:
        environ: of the rank, after `choose_pipe`.
        rank: its number.
    """
    prefix = environ.get(_PIPE)
    return None if prefix is None else Path(f"{prefix}{rank}.pipe")


def ask(pipe: Path, folder: Path, rank: int, *, seconds: float) -> bool:
    """Make a rank write its recording, and wait for it.

    Args:
        pipe: of the rank.
        folder: the one given to `keep_in`.
        rank: its number.
        seconds: to wait at most.

    Returns:
        Whether the file was written.
    """
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # fails if nobody reads the pipe
        os.write(descriptor, b"1")
        os.close(descriptor)
    except OSError:
        return False
    path, end, before, grown = folder / f"{_PREFIX}{rank}", time.monotonic() + seconds, 0, time.monotonic()
    while time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        size = path.stat().st_size if path.exists() else 0
        if size != before:
            before, grown = size, time.monotonic()
        elif size and time.monotonic() - grown >= _SETTLE_SECONDS:
            return True
    return before > 0
