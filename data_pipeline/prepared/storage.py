"""Where a prepared dataset is stored: a local folder, or a URL."""

import re
import stat
from pathlib import Path
from typing import Protocol

from typing_extensions import override

from configs import StreamSection, UserError
from configs.process.files.inside import opened, read_bytes
from configs.process.streams import hidden
from data_pipeline.errors import DataError, MissingError, ReadError
from data_pipeline.prepared.index import INDEX_FILE, DatasetIndex, FileEntry, hash_file
from data_pipeline.prepared.remote import SCHEMES, RemoteStorage


class Storage(Protocol):
    """Access to a dataset's files."""

    location: str
    """The folder or URL, for messages."""

    def path(self, file: str) -> str:
        """A file's full name, for messages."""

    def read_index(self) -> bytes:
        """The bytes of the index, by which everything else is verified.

        Raises:
            UserError: there is none, or it cannot be read.
        """

    def names(self) -> list[str]:
        """Names of all its files; none of a URL, where they must be known."""

    def read_beside(self, file: str) -> bytes:
        """A small file that the index does not have.

        Raises:
            MissingError: it is not there.
            ReadError: it cannot be read.
        """

    def problems(self, index: DatasetIndex) -> list[str]:
        """Problems that the files' names and sizes show, one line each."""

    def fetch(self, entry: FileEntry, *, hashed: bool = True) -> Path:
        """A local file with the content of an entry.

        Args:
            entry: a file of the index.
            hashed: compare the hash even if the file is local already; otherwise only the size.

        Raises:
            DataError: it cannot be read, or differs from the index.
        """

    def read(self, entry: FileEntry, offset: int, size: int, sha256: bytes | None = None) -> bytes:
        """A range of a file, from where the dataset lies. A remote one that has not this hash is asked for again.

        Raises:
            ReadError: there are too few bytes, or they cannot be read.
        """

    def read_block(self, entry: FileEntry, offset: int, size: int, sha256: bytes) -> bytes:
        """Like `read`, but through the cache if there is one. Thread-safe."""


def open_storage(location: Path | str, stream: StreamSection | None = None) -> Storage:
    """The storage of a folder, or of a URL given as text, which must not contain a password, as messages would show it.

    Raises:
        UserError: the scheme is not supported, or a package for it is missing.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?#@]+(/[^?#]*)?$)?", str(location))
    if scheme is None:
        return LocalStorage(Path(location))
    if isinstance(location, Path) or not scheme[2] or scheme[1].lower() not in SCHEMES:
        raise UserError(
            f"dataset: {hidden(str(location))!r}: cannot be read; give a folder of this machine, or a URL "
            f"{', '.join(f'{s}://HOST/PATH' for s in SCHEMES)}, without password (~/.netrc is read) and query"
        )
    return RemoteStorage(location, stream or StreamSection())


class LocalStorage(Storage):
    """A local folder."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder)
        self._folder = folder

    @override
    def path(self, file: str) -> str:
        return str(self._folder / file)

    @override
    def read_index(self) -> bytes:
        try:
            return read_bytes(self._folder / INDEX_FILE)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UserError(
                f"dataset: {self._folder} holds no {INDEX_FILE}; give a folder made by zeromt prepare"
            ) from error
        except OSError as error:
            raise UserError(f"dataset: {self._folder / INDEX_FILE}: cannot be read: {error.strerror}") from error

    @override
    def names(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir())

    @override
    def read_beside(self, file: str) -> bytes:
        try:
            return read_bytes(self._folder / file)
        except FileNotFoundError as error:
            raise MissingError("not found") from error
        except OSError as error:
            raise ReadError(f"cannot be read: {error.strerror}") from error

    def problems(self, index: DatasetIndex) -> list[str]:
        """Files that are missing, superfluous or of another size, one line each."""
        problems = []
        for entry in (*index.shards, *index.side_files()):
            path = self._folder / entry.file
            try:
                status = path.stat()
            except OSError:
                problems.append(f"{path}: is in the index and missing from the folder")
                continue
            if not stat.S_ISREG(status.st_mode):
                problems.append(f"{path}: is a folder or device; allowed is a plain file")
            elif status.st_size != entry.bytes:
                problems.append(f"{path}: has {status.st_size} bytes; allowed is the index's {entry.bytes}")
        listed = {shard.file for shard in index.shards}
        for path in sorted((*self._folder.glob("*.tar"), *self._folder.glob("*.tar.*"))):
            if path.name not in listed:
                problems.append(f"{path}: is not in the index; remove it or prepare the dataset again")
        return problems

    @override
    def fetch(self, entry: FileEntry, *, hashed: bool = True) -> Path:
        path = self._folder / entry.file
        try:
            if hashed and hash_file(path) != entry.sha256:
                raise DataError(f"{path}: its hash is not the index's")
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from error
        return path

    @override
    def read(self, entry: FileEntry, offset: int, size: int, sha256: bytes | None = None) -> bytes:
        try:
            with opened(self._folder / entry.file, buffering=0) as file:
                file.seek(offset)
                data: bytes = file.read(size)
        except OSError as error:
            raise ReadError(f"cannot be read: {error.strerror}") from error
        if len(data) != size:
            raise ReadError(f"{len(data)} bytes are left of {size}: the shard is cut short")
        return data

    read_block = read
