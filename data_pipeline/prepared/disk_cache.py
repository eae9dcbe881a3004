"""A disk cache of bounded size, with files named by the SHA-256 of their content, shared by a machine's processes.

Files are looked up by hash, so it does not matter which dataset, job or user stored them. They appear atomically, by
rename, and may disappear at any time, when another process evicts the least recently used ones.
"""

import contextlib
import fcntl
import hashlib
import itertools
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from configs import UserError
from configs.process.files.inside import opened, read_bytes
from data_pipeline.prepared.index import hash_file

log = logging.getLogger(__name__)

KEEP_FRACTION = 0.9
"""Eviction goes down to this fraction of the bound, so that the folder is not scanned at every addition."""
STALE_SECONDS = 24 * 3600
"""Seconds after which an unfinished file belongs to a process that died."""

LOCKS = "locks"
_NAME = re.compile(r"[0-9a-f]{64}(?P<part>\.[0-9]+-[0-9]+\.(?P<size>[0-9]+)\.part)?")

_numbers = itertools.count()


class DiskCache:
    """Files by the hash of their content, in `folder`, with at most `max_bytes` in total.

    Methods raise UserError if it cannot be written to.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str, size: int, *, hashed: bool = True) -> Path | None:
        """The file of a hash, if it exists and is whole. A broken file is removed.

        Args:
            key: SHA-256 in hexadecimal.
            size: its bytes.
            hashed: read the file and compare its hash; otherwise compare only its size.
        """
        path = self._path(key)
        try:
            is_whole = path.stat().st_size == size and (not hashed or hash_file(path) == key)
            if is_whole:
                os.utime(path)  # mark it as just used
        except OSError:
            return None
        if not is_whole:
            self.remove(key)
        return path if is_whole else None

    def read(self, key: str) -> bytes | None:
        """The content of a hash, if it exists and is whole. A broken file is removed."""
        path = self._path(key)
        try:
            content = read_bytes(path)
            os.utime(path)
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest() != key:
            self.remove(key)
            return None
        return content

    def write(self, key: str, content: bytes) -> None:
        """Store content whose hash has been verified."""
        with self._errors(), self._part(key, len(content)) as part:
            with opened(part, "wb") as file:
                file.write(content)
            self._publish(part, key)

    def add(self, key: str, size: int, fill: Callable[[Path], None]) -> Path:
        """Let one process of the machine make a file while others wait for it.

        Args:
            key: SHA-256 in hexadecimal.
            size: its bytes.
            fill: writes a file with that hash to a given path.
        """
        with self._errors(), self._locked(key[:2]):
            if path := self.find(key, size, hashed=False):
                return path
            with self._part(key, size) as part:
                fill(part)
                with opened(part) as file:
                    os.fsync(file.fileno())
                return self._publish(part, key)

    def remove(self, key: str) -> None:
        """Remove a broken file."""
        log.warning("%s: is not as it was written; removed", self._path(key))
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"stream.cache: {self.folder}: cannot be written: {error.strerror or error}; "
                "choose a folder with room for stream.cache_gigabytes"
            ) from error

    @contextlib.contextmanager
    def _part(self, key: str, size: int) -> Iterator[Path]:
        """A temporary file, after eviction has made room for it. Its name contains its final size."""
        path = self._path(key).with_name(f"{key}.{os.getpid()}-{next(_numbers)}.{size}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._reserve(size, path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[BinaryIO]:
        """Hold a lock among processes and threads, which is released when the holder dies. Yields the lock's file."""
        folder = self.folder / LOCKS
        folder.mkdir(parents=True, exist_ok=True)
        with opened(folder / name, "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _publish(self, part: Path, key: str) -> Path:
        """Rename a complete file; under the lock, as another process that counts sizes might see neither name."""
        with self._locked("total"):
            return part.replace(self._path(key))

    def _reserve(self, size: int, part: Path) -> None:
        """Make room for a file, and create it empty, so that other processes count it."""
        if size > self._max_bytes:
            raise UserError(
                f"stream.cache_gigabytes: {self._max_bytes / 1e9:g}; allowed is {size / 1e9:g} or more: "
                "the dataset has a file of that size"
            )
        with self._locked("total") as file:  # the lock's file holds the total size
            file.seek(0)
            content = file.read()
            total = int(content) if content.isdigit() else None
            if total is None or total + size > self._max_bytes:
                total = self._make_room(max(0, int(self._max_bytes * KEEP_FRACTION) - size))
            file.truncate(0)
            file.write(str(total + size).encode())
            opened(part, "xb").close()

    def _make_room(self, most: int) -> int:
        """Evict least recently used files until at most `most` bytes are left; returns the bytes left."""
        now, total = time.time(), 0
        candidates = []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            try:
                status = path.lstat()
            except OSError:  # another process removed it
                continue
            if (name := _NAME.fullmatch(path.name)) is None or not stat.S_ISREG(status.st_mode):
                continue  # not a cache's
            is_part = name["part"] is not None
            size = int(name["size"]) if is_part else status.st_size
            total += size
            if not is_part or now - status.st_mtime > STALE_SECONDS:
                candidates.append((status.st_mtime, size, path))
        for _, size, path in sorted(candidates):
            if total <= most:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total
