"""Where a prepared dataset is: a local folder, or a URL that fsspec reads (s3, gs, http, https).

What comes from a server is used only after its hash was compared with the index's. It is kept in a cache folder of
bounded size, in files named by the SHA-256 of their content.
"""

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import override

from configs import StreamSection, UserError
from configs.process.files import expand, explain
from configs.process.files.inside import opened, read_bytes, write_bytes
from configs.process.streams import hidden
from data_pipeline.prepared.index import DataError, FileEntry, MissingError, ReadError, hash_file

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMES = {"http": "http", "https": "http", "s3": "s3", "gs": "gs"}
"""URL schemes, with the optional extra of this package that each needs."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
RETRIED_STATUSES = (408, 425, 429)
"""HTTP client errors that are transient: time-out, too early, too many requests."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EEXIST)
"""Errors of the cache's folder."""
_WRONG = "its hash is not the index's: the file is corrupt or was replaced"


class Storage:
    """Access to a dataset's files in a local folder."""

    def __init__(self, location: str) -> None:
        self.location = location
        """The folder or URL, for messages."""

    def path(self, file: str) -> str:
        """A file's full name."""
        return f"{self.location}/{file}"

    def names(self) -> list[str]:
        """Names of all its files; none of a URL, where they must be known."""
        return sorted(path.name for path in Path(self.location).iterdir())

    def read(self, file: str) -> bytes:
        """A small file that the index does not have, or the index.

        Raises:
            MissingError: it is not there.
            ReadError: it cannot be read.
        """
        try:
            return read_bytes(Path(self.path(file)))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingError("not found") from error
        except OSError as error:
            raise ReadError(f"cannot be read: {error.strerror}") from error

    def fetch(self, entry: FileEntry, *, hashed: bool = True) -> Path:
        """A local file with the content of an entry.

        Args:
            entry: a file of the index.
            hashed: compare the hash of a file that is local already; otherwise only its size.

        Raises:
            DataError: it cannot be read, or differs from the index.
        """
        path = Path(self.path(entry.file))
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{path}: is a folder or device; allowed is a file")
            if status.st_size != entry.bytes:
                raise DataError(f"{path}: has {status.st_size} bytes; allowed is the index's {entry.bytes}")
            if hashed and hash_file(path) != entry.sha256:
                raise DataError(f"{path}: its hash is not the index's")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        return path

    def read_block(self, entry: FileEntry, offset: int, size: int, sha256: bytes) -> bytes:
        """A range of a file that has this hash. Thread-safe.

        Raises:
            ReadError: it cannot be read, or has another hash.
        """
        try:
            return _verified_part(Path(self.path(entry.file)), offset, size, sha256)
        except OSError as error:
            raise ReadError(f"cannot be read: {error.strerror}") from error


class RemoteStorage(Storage):
    """A dataset at a URL. Blocks are fetched by byte range, or from whole shards if the server sends these instead."""

    def __init__(self, url: str, section: StreamSection) -> None:
        """Prepare to read.

        Args:
            url: `SCHEME://HOST/PATH`.
            section: the cache's folder and bound, retries and time-outs.

        Raises:
            UserError: a package is missing.
        """
        super().__init__(url.rstrip("/"))
        scheme = url.partition(":")[0].lower()
        self._retries, self._timeout = section.retries, section.timeout_seconds
        self._cache = Cache(Path(expand(section.cache)), int(section.cache_gigabytes * 1e9))
        try:
            self._files = _filesystem(scheme, section.timeout_seconds)
        except ImportError as error:
            raise UserError(
                f"dataset: {self.location}: a package is missing ({error}); run `pip install zeromt[{SCHEMES[scheme]}]`"
            ) from error

    @override
    def names(self) -> list[str]:
        return []

    @override
    def read(self, file: str) -> bytes:
        content: bytes = self._persist(file, lambda: self._files.cat_file(self.path(file)))
        return content

    @override
    def fetch(self, entry: FileEntry, *, hashed: bool = True) -> Path:
        path = self._cache.path(entry.sha256)
        if self._cache.has(path, entry.bytes) and (not hashed or hash_file(path) == entry.sha256):
            return path

        def download(part: Path) -> None:
            self._files.get_file(self.path(entry.file), str(part))
            if hash_file(part) != entry.sha256:
                raise ReadError(_WRONG)

        try:
            self._persist(entry.file, lambda: self._cache.add(path, entry.bytes, download))
        except ReadError as error:
            raise DataError(f"{self.path(entry.file)}: {error}") from error
        return path

    @override
    def read_block(self, entry: FileEntry, offset: int, size: int, sha256: bytes) -> bytes:
        block, shard = self._cache.path(sha256.hex()), self._cache.path(entry.sha256)
        for path, begin, length in ((block, 0, size), (shard, offset, entry.bytes)):
            if self._cache.has(path, length):
                try:
                    return _verified_part(path, begin, size, sha256)
                except (OSError, ReadError):  # another process evicted it, or it is broken
                    path.unlink(missing_ok=True)

        def request() -> bytes:
            data = self._files.cat_file(self.path(entry.file), start=offset, end=offset + size)
            if len(data) == entry.bytes != size:  # a server without ranges has sent the whole shard
                self._cache.add(shard, len(data), lambda part: write_bytes(part, data))
                data = data[offset : offset + size]
            return _verified(data, sha256)

        data = self._persist(entry.file, request)
        self._cache.add(block, size, lambda part: write_bytes(part, data))
        return data

    def _persist(self, file: str, attempt: Callable[[], T]) -> T:
        """Retry, waiting longer each time.

        Raises:
            ReadError: the last try failed, or a try failed with a permanent error.
        """
        for number in range(self._retries + 1):
            try:
                return attempt()
            except UserError:
                raise
            except FileNotFoundError as error:
                raise MissingError("not found") from error
            except Exception as error:  # each file system has its own exceptions
                reason, status = _reason(error, self._timeout), getattr(error, "status", None)
                is_client = isinstance(status, int) and 400 <= status < 500 and status not in RETRIED_STATUSES
                if is_client or isinstance(error, PermissionError):
                    raise ReadError(reason) from error
                if number == self._retries:
                    raise ReadError(f"after {number + 1} tries: {reason}") from error
            log.warning("%s: %s; try %d of %d failed", self.path(file), reason, number + 1, self._retries + 1)
            time.sleep(min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number))
        raise AssertionError("not reached")


def open_storage(location: Path | str, stream: StreamSection | None = None) -> Storage:
    """The storage of a folder, or of a URL given as text.

    Raises:
        UserError: the scheme is not supported, or a package for it is missing.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?#@]+(/[^?#]*)?$)?", str(location))
    if scheme is None:
        return Storage(str(Path(location)))
    if isinstance(location, Path) or not scheme[2] or scheme[1].lower() not in SCHEMES:
        shown = re.sub("//.*@", "//", hidden(str(location)))
        raise UserError(
            f"dataset: {shown!r}: cannot be read; give a folder of this machine, or a URL "
            f"{', '.join(f'{s}://HOST/PATH' for s in SCHEMES)}, without password (~/.netrc is read) and query"
        )
    return RemoteStorage(location, stream or StreamSection())


class Cache:
    """Files by the hash of their content; the oldest are removed. Processes share it without locks: files appear by a
    rename and may go at any time.
    """

    def __init__(self, folder: Path, most: int) -> None:
        """A cache of at most `most` bytes, and what was added since it was last measured."""
        self._folder, self._most = folder, most
        self._added = most

    def path(self, sha256: str) -> Path:
        """The place of a hash."""
        return self._folder / sha256[:2] / sha256

    def has(self, path: Path, size: int) -> bool:
        """Whether a file is there; it counts as just used."""
        try:
            os.utime(path)
            return path.stat().st_size == size
        except OSError:
            return False

    def add(self, path: Path, size: int, fill: Callable[[Path], object]) -> None:
        """Add a file.

        Args:
            path: its place.
            size: its bytes.
            fill: writes it to a given path.

        Raises:
            UserError: the cache is too small for it, or cannot be written to.
        """
        if size > self._most:
            raise UserError(
                f"stream.cache_gigabytes: {self._most / 1e9:g}; allowed is {size / 1e9:g} or more: the dataset has a "
                "file of that size"
            )
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._added += size
            if self._added > self._most / 20:
                self._evict(size)
            fill(part)
            part.replace(path)
        except OSError as error:
            if error.errno not in DISK_ERRORS:
                raise
            raise UserError(f"stream.cache: {self._folder}: cannot be written: {explain(error)}") from error
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def _evict(self, size: int) -> None:
        """Remove the least recently used files, until `size` more bytes are well within the bound.

        Only what is named by a hash: a stranger's configuration may name any folder.
        """
        files = []
        for path in self._folder.glob(f"??/{64 * '[0-9a-f]'}*"):
            try:
                status = path.lstat()
            except OSError:  # another process removed it
                continue
            files.append((status.st_mtime, status.st_size, path))
        total = sum(one[1] for one in files) + size
        for _, freed, path in sorted(files):
            if total <= 0.9 * self._most:
                break
            path.unlink(missing_ok=True)
            total -= freed
        self._added = 0


def _verified_part(path: Path, offset: int, size: int, sha256: bytes) -> bytes:
    with opened(path, buffering=0) as file:
        file.seek(offset)
        return _verified(file.read(size), sha256)


def _verified(data: bytes, sha256: bytes) -> bytes:
    if hashlib.sha256(data).digest() != sha256:
        raise ReadError(_WRONG)
    return data


def _filesystem(scheme: str, timeout: float) -> Any:
    """The fsspec file system of a scheme.

    Raises:
        ImportError: an optional package is missing.
    """
    import fsspec  # fsspec is optional, and so are the packages that it imports for a scheme

    if SCHEMES[scheme] != "http":
        return fsspec.filesystem(scheme, skip_instance_cache=True)
    import aiohttp

    options = {
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout),
        "headers": {"Accept-Encoding": "identity"},  # ranges must refer to the uncompressed file
        "auto_decompress": False,
        "trust_env": True,  # use proxies, and passwords from ~/.netrc
    }
    return fsspec.filesystem(scheme, skip_instance_cache=True, client_kwargs=options)


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(status := getattr(error, "status", None), int):
        return f"HTTP {status} {getattr(error, 'message', '')}".rstrip()
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"no answer within stream.timeout_seconds={timeout:g}"
    text = hidden(" ".join(str(error).split()))
    return text if isinstance(error, ReadError) else f"{type(error).__name__}: {text}"
