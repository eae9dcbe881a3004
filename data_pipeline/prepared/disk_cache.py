"""A bounded folder of files named by the SHA-256 of their content, shared by the processes of a machine.

What is asked for is a hash, so it does not matter which dataset, job or user put a file there. Files appear whole, by
rename, and may vanish at any time: another process makes room by removing what was used longest ago.
"""

import contextlib
import fcntl
import hashlib
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from configs import UserError
from data_pipeline.prepared.index import hash_file

log = logging.getLogger(__name__)

KEEP_FRACTION = 0.9
"""Making room leaves this fraction of the bound, so that the folder is not walked at every addition."""
STALE_SECONDS = 24 * 3600
"""An unfinished file that is older belongs to a process that died."""

_numbers = itertools.count()


class DiskCache:
    """Files by the hash of their content, in `folder`, of at most `max_bytes` together.

    Methods raise UserError where the folder cannot be written to.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str, size: int, *, hashed: bool = True) -> Path | None:
        """The file of a hash, if it is there and whole. A broken one is removed.

        Args:
            key: SHA-256 in hexadecimal.
            size: its bytes.
            hashed: read the file and compare its hash; else compare its size only.
        """
        path = self._path(key)
        try:
            is_whole = path.stat().st_size == size and (not hashed or hash_file(path) == key)
            if is_whole:
                os.utime(path)  # last used now
        except OSError:
            return None
        if not is_whole:
            self.remove(key)
        return path if is_whole else None

    def read(self, key: str) -> bytes | None:
        """The content of a hash, if it is there and whole. A broken file is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest() != key:
            self.remove(key)
            return None
        return content

    def write(self, key: str, content: bytes) -> None:
        """Put in content whose hash was verified."""
        with self._errors(), self._part(key, len(content)) as part:
            part.write_bytes(content)
            self._publish(part, key)

    def add(self, key: str, size: int, fill: Callable[[Path], None]) -> Path:
        """Have one process of the machine make a file while the others wait for it.

        Args:
            key: SHA-256 in hexadecimal.
            size: its bytes.
            fill: writes a file of that hash to the path that it is given.
        """
        with self._errors(), self._locked(key[:2]):
            if path := self.find(key, size, hashed=False):
                return path
            with self._part(key, size) as part:
                fill(part)
                with part.open("rb") as file:
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
        """A file to write to, gone afterwards, with room made for it. Its name tells the bytes that it will have."""
        path = self._path(key).with_name(f"{key}.{os.getpid()}-{next(_numbers)}.{size}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._reserve(size, path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[BinaryIO]:
        """Hold a lock among processes and threads; it is let go of when the holder dies. Yields the lock's file."""
        folder = self.folder / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _publish(self, part: Path, key: str) -> Path:
        """Give a whole file its name; under the lock, or another process that counts might see neither name."""
        with self._locked("total"):
            return part.replace(self._path(key))

    def _reserve(self, size: int, part: Path) -> None:
        """Make room for a file, and have it there, empty, when another process counts."""
        if size > self._max_bytes:
            raise UserError(
                f"stream.cache_gigabytes: {self._max_bytes / 1e9:g}; allowed is {size / 1e9:g} or more: "
                "the dataset has a file of that size"
            )
        with self._locked("total") as file:  # the lock's file holds the count
            content = file.read()
            total = int(content) if content.isdigit() else None
            if total is None or total + size > self._max_bytes:
                total = self._make_room(max(0, int(self._max_bytes * KEEP_FRACTION) - size))
            file.seek(0)
            file.truncate()
            file.write(str(total + size).encode())
            part.touch()

    def _make_room(self, most: int) -> int:
        """Remove what was used longest ago until `most` bytes are left. Returns the bytes that are."""
        now, total = time.time(), 0
        candidates = []
        for path in self.folder.glob("[0-9a-f][0-9a-f]/*"):
            try:
                status = path.stat()
            except OSError:  # another process removed it
                continue
            is_part = path.suffix == ".part"
            size = int(path.suffixes[-2][1:]) if is_part else status.st_size
            total += size
            if not is_part or now - status.st_mtime > STALE_SECONDS:
                candidates.append((status.st_mtime, size, path))
        for _, size, path in sorted(candidates):
            if total <= most:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total
