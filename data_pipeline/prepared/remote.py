"""A dataset at a URL, read with fsspec through a bounded cache.

Data from a server are used only after their hash was compared with the index. webdataset is not used here: it silently
drops broken samples and runs `pipe:` URLs in a shell.
"""

import errno
import hashlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from configs import StreamSection, UserError
from configs.process.files import expand
from configs.process.files.inside import opened, parse_json, replacing
from configs.process.streams import hidden
from data_pipeline.errors import DataError, MissingError, ReadError
from data_pipeline.prepared import bounded_http
from data_pipeline.prepared.disk_cache import DiskCache
from data_pipeline.prepared.index import INDEX_FILE, DatasetIndex, FileEntry, hash_file

log = logging.getLogger(__name__)

T = TypeVar("T")

SCHEMES = {"http": "http", "https": "http", "s3": "s3", "gs": "gs"}
"""URL schemes, with the optional extra of this package that each needs."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
BYTES_A_TIMEOUT = 16 << 20
"""A larger read may take `stream.timeout_seconds` for every this many bytes."""
INDEX_BYTES = 1 << 26
"""The most that an index may have: of some 400,000 shards."""
BESIDE_BYTES = 1 << 20
"""The most that a file has that the index does not."""
RETRIED_STATUSES = (408, 425, 429)
"""HTTP client errors that are transient: time-out, too early, too many requests."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class RemoteStorage:
    """A dataset at a URL. Blocks are fetched by byte range, or from whole shards if the server does not support ranges.

    Args:
        url: `SCHEME://HOST/PATH`.
        section: the cache's folder and bound, retries and time-outs.

    Raises:
        UserError: a package is missing.
    """

    def __init__(self, url: str, section: StreamSection) -> None:
        self.location = url.rstrip("/")
        self._scheme = url.split(":")[0].lower()
        self._retries = section.retries
        self._timeout = section.timeout_seconds
        self._has_ranges = True
        self._cache = DiskCache(Path(expand(section.cache)), int(section.cache_gigabytes * 1e9))
        try:
            self._files = _filesystem(self._scheme, section.timeout_seconds)
        except ImportError as error:
            extra = SCHEMES[self._scheme]
            raise UserError(
                f"dataset: {self.location}: a package is missing ({error}); run `pip install zeromt[{extra}]`"
            ) from error

    def path(self, file: str) -> str:
        """A file's URL."""
        return f"{self.location}/{file}"

    def read_index(self) -> bytes:
        """The bytes of the index, fetched again each time, testing whether the server supports ranges."""

        def attempt() -> bytes:
            content = self._request(INDEX_FILE, most=INDEX_BYTES)
            parse_json(content)  # a truncated one is requested again
            is_http = SCHEMES[self._scheme] == "http"
            self._has_ranges = not is_http or len(self._request(INDEX_FILE, 0, 1, most=INDEX_BYTES)) == 1
            return content

        try:
            return self._persist(INDEX_FILE, attempt)
        except MissingError as error:
            raise UserError(f"dataset: {self.location} holds no {INDEX_FILE}; give what zeromt prepare made") from error
        except ReadError as error:
            raise UserError(f"dataset: {self.path(INDEX_FILE)}: {error}") from error

    def names(self) -> list[str]:
        """None: not every server lists them."""
        return []

    def read_beside(self, file: str) -> bytes:
        """`Storage.read_beside`: fetched again each time."""
        return self._persist(file, lambda: self._request(file, most=BESIDE_BYTES))

    def problems(self, index: DatasetIndex) -> list[str]:
        """None: checking each shard would take a request, and reading verifies it anyway."""
        return []

    def fetch(self, entry: FileEntry, *, hashed: bool = True) -> Path:
        """`Storage.fetch`: the file in the cache, which it is downloaded to if it is not there."""
        try:
            return self._fetch(entry, hashed=hashed)
        except ReadError as error:
            raise DataError(f"{self.path(entry.file)}: {error}") from error

    def read(self, entry: FileEntry, offset: int, size: int, sha256: bytes | None = None) -> bytes:
        """`Storage.read`: a range of a file, or of the whole shard if the server does not support ranges."""
        if not size:
            return b""
        if not self._has_ranges:
            return self._read_shard(entry, offset, size, sha256)

        def attempt() -> bytes:
            data = self._request(entry.file, offset, offset + size, most=size)
            if len(data) != size:
                raise ReadError(f"{len(data)} bytes came where {size} were asked for")
            if sha256 is not None and hashlib.sha256(data).digest() != sha256:
                raise ReadError("its hash is not the index's: the shard is corrupt or was replaced")
            return data

        return self._persist(entry.file, attempt)

    def read_block(self, entry: FileEntry, offset: int, size: int, sha256: bytes) -> bytes:
        """`Storage.read_block`: a block from the cache, else from the server."""
        if not self._has_ranges:
            return self._read_shard(entry, offset, size, sha256)
        data = self._cache.read(sha256.hex())
        if data is None:
            data = self.read(entry, offset, size, sha256)
            self._cache.write(sha256.hex(), data)
        return data

    def _fetch(self, entry: FileEntry, *, hashed: bool) -> Path:
        if path := self._cache.find(entry.sha256, entry.bytes, hashed=hashed):
            return path
        return self._cache.add(entry.sha256, entry.bytes, lambda path: self._download(entry, path))

    def _read_shard(self, entry: FileEntry, offset: int, size: int, sha256: bytes | None) -> bytes:
        """A range of a whole shard in the cache; the file may be evicted or corrupted meanwhile."""
        for hashed in (False, True, True):
            try:
                with opened(self._fetch(entry, hashed=hashed), buffering=0) as file:
                    file.seek(offset)
                    data: bytes = file.read(size)
            except FileNotFoundError:
                continue
            if len(data) == size and (sha256 is None or hashlib.sha256(data).digest() == sha256):
                return data
        raise ReadError("its hash is not the index's: the shard is corrupt or was replaced")

    def _download(self, entry: FileEntry, path: Path) -> None:
        """Download and verify a whole file."""

        def attempt() -> None:
            with replacing(path) as file:
                self._copy(entry.file, file.write, most=entry.bytes)
            if (size := path.stat().st_size) != entry.bytes:
                raise ReadError(f"{size} bytes came; allowed is the index's {entry.bytes}")
            if hash_file(path) != entry.sha256:
                raise ReadError("its hash is not the index's")

        self._persist(entry.file, attempt)

    def _request(self, file: str, start: int | None = None, end: int = 0, *, most: int) -> bytes:
        """A file, or a range of it; more than `most` bytes are an error."""
        data = bytearray()
        self._copy(file, data.extend, start, end, most=most)
        return bytes(data)

    def _copy(
        self, file: str, take: Callable[[bytes], object], start: int | None = None, end: int = 0, *, most: int
    ) -> None:
        from fsspec.asyn import sync

        timeout = self._timeout * (1 + most // BYTES_A_TIMEOUT)
        url = self.path(file)
        if SCHEMES[self._scheme] == "http":
            reading = bounded_http.read
            sync(self._files.loop, reading, self._files, url, take, start=start, end=end, most=most, timeout=timeout)
            return
        size = sync(self._files.loop, self._files._info, url, timeout=self._timeout)["size"] if start is None else 0
        if size > most:
            raise ReadError(f"has {size} bytes; at most {most} are read")
        given = {} if start is None else {"start": start, "end": end}
        take(sync(self._files.loop, self._files._cat_file, url, **given, timeout=timeout))

    def _persist(self, file: str, attempt: Callable[[], T]) -> T:
        """Retry, waiting longer each time.

        Raises:
            ReadError: the last try failed, or a try failed with a permanent error.
        """
        tries = self._retries + 1
        for number in range(tries):
            try:
                return attempt()
            except Exception as error:  # each file system has its own exceptions
                if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                    raise  # an error of the cache
                reason = _reason(error, self._timeout)
                if isinstance(error, FileNotFoundError):
                    raise MissingError(reason) from error
                if _is_final(error):
                    raise ReadError(reason) from error
                if number + 1 == tries:
                    raise ReadError(f"after {tries} tries: {reason}" if number else reason) from error
            log.warning("%s: %s; try %d of %d failed", self.path(file), reason, number + 1, tries)
            time.sleep(min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**number))
        raise AssertionError("not reached")


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
        # `sync` limits the whole request; this limits a server's silence.
        "timeout": aiohttp.ClientTimeout(total=None, sock_connect=timeout, sock_read=timeout),
        "headers": {"Accept-Encoding": "identity"},  # ranges must refer to the uncompressed file
        "auto_decompress": False,  # what is sent compressed all the same may be a few bytes that become gigabytes
        "trust_env": True,  # use proxies, and passwords from ~/.netrc
    }
    return fsspec.filesystem(scheme, skip_instance_cache=True, client_kwargs=options)


def _is_final(error: Exception) -> bool:
    """Whether the error is permanent."""
    status = _status(error)
    is_client = status is not None and 400 <= status < 500 and status not in RETRIED_STATUSES
    return is_client or isinstance(error, FileNotFoundError | PermissionError)


def _status(error: Exception) -> int | None:
    """The HTTP status of an error of aiohttp or gcsfs."""
    name = "status" if hasattr(error, "status") else "code"  # aiohttp's have both, and warn of the second
    status = getattr(error, name, None)
    return status if isinstance(status, int) else None


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, FileNotFoundError):
        return "not found"
    if (status := _status(error)) is not None:
        return f"HTTP {status} {getattr(error, 'message', '')}".rstrip()
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"no answer within stream.timeout_seconds={timeout:g}"
    text = hidden(" ".join(str(error).split()))
    return text if isinstance(error, ReadError) else f"{type(error).__name__}: {text}"
