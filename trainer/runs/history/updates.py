"""updates.bin in a run's folder: 16 bytes an update, by which two runs are compared in a few reads.

    0      zeromt updates 1
    16 n   of update n, from 1: chain of the pairs (6 bytes), chain of the losses (6), the loss in fp32 (4)

A chain is a hash of the previous chain and the update's own data: if two runs have the same chain at an update, all
updates up to it are the same. A record of zeros means that the update is not known: the disk was full.
"""

import hashlib
import logging
import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from configs.process.files.inside import opened
from trainer.runs.layout import UPDATES_FILE

log = logging.getLogger(__name__)

MAGIC = b"zeromt updates 1"
RECORD_BYTES = 16
_RECORD = struct.Struct("<6s6sf")
_CHAIN_BYTES = 6
_BEGIN = bytes(_CHAIN_BYTES)
_UNKNOWN = bytes(RECORD_BYTES)


@dataclass(frozen=True, slots=True)
class Record:
    """The record of an update."""

    pairs: bytes
    """The chain of the pairs."""
    losses: bytes
    """The chain of the losses' bits."""
    loss: float
    """Loss per target token; not finite if the update was skipped."""


class UpdateLog:
    """Writes updates.bin: 16 bytes in place, by one system call. Only rank 0 has one."""

    def __init__(self, run: Path, *, resume_step: int) -> None:
        """Remove the records of later updates, and continue the chains.

        Raises:
            OSError: the file cannot be read or written.
        """
        self._path = run / UPDATES_FILE
        self._file = opened(self._path, os.O_RDWR | os.O_CREAT)
        if os.pread(self._file, len(MAGIC), 0) != MAGIC:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, MAGIC, 0)
        if os.fstat(self._file).st_size > _place(resume_step + 1):
            os.ftruncate(self._file, _place(resume_step + 1))
        last = _decode(os.pread(self._file, RECORD_BYTES, _place(resume_step))) if resume_step else None
        self._pairs, self._losses = (_BEGIN, _BEGIN) if last is None else (last.pairs, last.losses)

    def write(self, step: int, pairs_digest: int, loss: float) -> None:
        """Record an update.

        Args:
            step: its number, from 1.
            pairs_digest: `UpdateCounts.pairs_digest`, wrapped or not.
            loss: per target token, over all ranks.
        """
        self._pairs = _chain(self._pairs, _digest(pairs_digest))
        self._losses = _chain(self._losses, struct.pack("<d", loss if math.isfinite(loss) else math.nan))
        try:
            os.pwrite(self._file, _RECORD.pack(self._pairs, self._losses, _in_fp32(loss)), _place(step))
        except OSError as error:
            log.warning("%s has a gap at step %d, training goes on: %s", self._path, step, error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class NoUpdateLog:
    """For every rank except the first: records nothing."""

    def write(self, step: int, pairs_digest: int, loss: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class UpdatesFile:
    """Reads updates.bin, a record at a time."""

    def __init__(self, run: Path) -> None:
        """Open it.

        Raises:
            FileNotFoundError: the run has none.
            OSError: it cannot be read.
        """
        path = run / UPDATES_FILE
        self._file = opened(path)
        self._kept: dict[int, Record | None] = {}
        self.bytes_read = 0
        """Bytes of the file read so far."""
        if self._read(0) != MAGIC:
            self.close()
            raise FileNotFoundError(f"{path}: is not such a file of this version")
        self.num_updates = max(0, os.fstat(self._file).st_size // RECORD_BYTES - 1)
        """Number of updates up to the last one made."""

    def record(self, step: int) -> Record | None:
        """The record of an update; None if it is not known. Records are cached."""
        if step not in self._kept:
            self._kept[step] = _decode(self._read(_place(step)))
        return self._kept[step]

    def is_of(self, step: int, pairs_digest: int) -> bool | None:
        """Whether an update has the pairs of a digest; None if it is not known.

        Args:
            step: its number, from 1.
            pairs_digest: see `UpdateLog.write`.
        """
        record = self.record(step)
        before = None if step == 1 else self.record(step - 1)
        if record is None or (before is None and step > 1):
            return None
        chain = _BEGIN if before is None else before.pairs
        return _chain(chain, _digest(pairs_digest)) == record.pairs

    def first_known(self) -> int:
        """The first update from which on all are known; the number of updates plus one if none is."""
        return first_where(lambda step: self.record(step) is not None, 1, self.num_updates)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self, place: int) -> bytes:
        data = os.pread(self._file, RECORD_BYTES, place)
        self.bytes_read += len(data)
        return data


def first_where(holds: Callable[[int], bool], first: int, last: int) -> int:
    """The first number from which on a condition holds; `last + 1` if for none. The condition must be monotonic.

    Bisection: it tests about log2 of their number, the last one first.
    """
    if first > last or not holds(last):
        return last + 1
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if holds(middle) else (middle + 1, last)
    return first


def _chain(before: bytes, more: bytes) -> bytes:
    return hashlib.blake2b(before + more, digest_size=_CHAIN_BYTES).digest()


def _digest(pairs_digest: int) -> bytes:
    return struct.pack("<Q", pairs_digest % 2**64)


def _in_fp32(loss: float) -> float:
    """A number as fp32 stores it: too large ones become infinite."""
    return loss if not math.isfinite(loss) or abs(loss) < 3e38 else math.inf


def _place(step: int) -> int:
    return RECORD_BYTES * step


def _decode(data: bytes) -> Record | None:
    return None if len(data) < RECORD_BYTES or data == _UNKNOWN else Record(*_RECORD.unpack(data))
