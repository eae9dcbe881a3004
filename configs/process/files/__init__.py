"""Files and folders that the user names: errors of the file system become one line that says what to do."""

import contextlib
import errno
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from typing_extensions import override

from configs.errors import UserError

_ADVICE = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "its symbolic links form a loop; fix them",
    errno.ENOTDIR: "a file is where a folder should be; move it or give another name",
    errno.EISDIR: "it is a folder; give a file",
    errno.EEXIST: "something with this name exists; move it or give another name",
    errno.EACCES: "change its permissions or give another place",
    errno.EPERM: "change its permissions or give another place",
    errno.EROFS: "give a place that can be written",
    errno.ENOSPC: "free some space, or give another place",
    errno.EDQUOT: "free some space, or give another place",
    errno.ENOENT: "no such file or folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_USER_ERRORS = (
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
)
"""Errors that the user must fix, since trying again does not help."""


TEMPORARY = ".zeromt-"
"""Prefix of the names of files that are being written."""


class FileError(UserError):
    """A file or folder that the user named cannot be used."""


def explain(error: OSError) -> str:
    """The message of a file system error and what to do about it, without the file's name."""
    message = error.strerror or str(error) or type(error).__name__
    advice = _ADVICE.get(error.errno or 0)
    return message if advice is None or advice.lower() == message.lower() else f"{message}; {advice}"


def describe(error: OSError) -> str:
    """`explain`, with the file's name before it if it is known."""
    names = " -> ".join(repr(os.fspath(n)) for n in (error.filename, error.filename2) if isinstance(n, str | bytes))
    return f"{names}: {explain(error)}" if names else explain(error)


def as_file_error(error: OSError) -> FileError | None:
    """The error as a `FileError`, if the user must fix it and it names a file; else None."""
    return FileError(describe(error)) if error.errno in _USER_ERRORS and error.filename is not None else None


def expand(name: str) -> str:
    """Replace `~` at the beginning of a path with the home folder, as a shell does.

    Raises:
        FileError: there is no such user, or the path is invalid.
    """
    if "\0" in name:
        raise FileError(f"{name!r}: contains a NUL character; give a path without one")
    if not name.startswith("~"):
        return name
    try:
        return str(Path(name).expanduser())
    except RuntimeError as error:
        raise FileError(f"{name!r}: no such home folder; write the whole path, or ./~ for that name") from error


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn file system errors that the user can fix into ones that begin with the name of an option or field.

    Raises:
        FileError: the user must fix something.
    """
    try:
        yield
    except FileError as error:
        message = str(error)
        raise FileError(message if message.startswith(f"{what}:") else f"{what}: {message}") from error
    except OSError as error:
        if (problem := as_file_error(error)) is None:
            raise
        raise FileError(f"{what}: {problem}") from error


@contextlib.contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turn errors of the disk into one line, where the work so far stays and the same command goes on.

    Args:
        what: the option or field that names the folder.
        folder: that is written to.

    Raises:
        UserError: the disk is full, or the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            free = shutil.disk_usage(folder.absolute().parent).free / 1e6
            raise UserError(
                f"{what}: {folder}: the disk is full, {free:,.0f} MB are free; make room and run the same command, "
                "which goes on"
            ) from error
        raise UserError(f"{what}: {folder}: cannot be written: {explain(error)}") from error


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """The status of the file or folder at a path; None if there is none.

    Raises:
        FileError: the status cannot be read.
    """
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as error:
        raise FileError(f"{os.fspath(path)!r}: {explain(error)}") from error
    except ValueError as error:  # a NUL character
        raise FileError(f"{os.fspath(path)!r}: {error}; give a path without one") from error


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether a file or folder exists; see `status_of`."""
    return status_of(path) is not None


def is_dir(path: str | os.PathLike[str]) -> bool:
    """Whether a folder exists; see `status_of`."""
    status = status_of(path)
    return status is not None and stat.S_ISDIR(status.st_mode)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file exists; see `status_of`."""
    status = status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def check_apart(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]) -> None:
    """Check that a command does not use the same file for two purposes, under whatever names, links or redirections.

    An output must not be an input, be in an input folder, or be another output. A stream (a pipe, a terminal) can be
    read only once. Standard output and standard error count as outputs even if they are not named; they may be the same
    file. A device such as /dev/null may be used any number of times.

    Args:
        inputs: paths by the option or field that names them; None for standard input.
        outputs: the same; None for standard output.

    Raises:
        FileError: two paths are the same file; the message names both.
    """
    seen: dict[object, str] = {}
    for what, path in inputs.items():
        with naming(what):
            place = _Place.of(path, 0)
        if place.is_stream and place.key in seen:
            raise FileError(f"{what}: {place.name} is also what {seen[place.key]}; give another")
        seen.setdefault(place.key, f"{what} reads")
    folders = [(what, os.path.realpath(path)) for what, path in inputs.items() if path is not None and is_dir(path)]
    for what, path in outputs.items():
        with naming(what):
            place = _Place.of(path, 1)
        if place.key in seen and not place.may_be_shared:
            raise FileError(f"{what}: {place.name} is also what {seen[place.key]}; give another file")
        for other, folder in folders:
            if path is not None and f"{os.path.realpath(path)}/".startswith(f"{folder.rstrip('/')}/"):
                raise FileError(f"{what}: {place.name} is in {folder!r}, which {other} reads; give another place")
        if not place.may_be_shared:
            seen[place.key] = f"{what} writes"
    own = {_Place.of(path, 1).key for path in outputs.values() if path is None or _descriptor(path) is not None}
    for what, number in (("standard output", 1), ("standard error", 2)):
        place = _Place.of(None, number)
        if place.key in seen and place.key not in own and not place.is_stream:
            raise FileError(f"{what}: goes to the file that {seen[place.key]}; redirect it to another")


@contextlib.contextmanager
def written(path: str, what: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a file to write atomically: it appears, or replaces an old one, only if the block ends without an error.

    It is opened at once, so that a path that cannot be written is reported before the work. A pipe, a device or an open
    stream of this process such as /dev/stdout is written directly.

    Args:
        path: path of the file; a symbolic link is followed.
        what: the option or field that names it, for messages.
        mode: w for text, wb for bytes.

    Raises:
        FileError: the file cannot be written. Other errors in the block are not changed.
    """
    with naming(what):
        status, descriptor = status_of(path), _descriptor(path)
    if descriptor is not None or (status is not None and not stat.S_ISREG(status.st_mode)):
        with _told(path, what):
            raw = os.dup(descriptor) if descriptor is not None else os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        with _opened(raw, path, what, mode) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    with _told(path, what):
        if status is not None:
            os.close(os.open(target, os.O_WRONLY))  # raises an error if it must not be written
        raw, beside = _temporary(target)
    try:
        with _opened(raw, path, what, mode) as file:
            yield file
        with _told(path, what):
            os.chmod(beside, stat.S_IMODE(status.st_mode) if status is not None else 0o666 & ~umask())  # noqa: PTH101
            try:
                Path(beside).replace(target)
            except OSError:  # a mount point, or a writable file in a read-only folder
                if status is None:
                    raise
                shutil.copyfile(beside, target)
    finally:
        Path(beside).unlink(missing_ok=True)


def _temporary(target: Path) -> tuple[int, str]:
    """A new open file beside the target, or in the system's temporary folder if only the target itself is writable."""
    try:
        return tempfile.mkstemp(prefix=TEMPORARY, dir=target.parent)
    except OSError as error:
        if target.exists() and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return tempfile.mkstemp(prefix=TEMPORARY)
        raise


@contextlib.contextmanager
def _opened(descriptor: int, path: str, what: str, mode: str) -> Iterator[IO[Any]]:
    """A file on a descriptor. Errors of writing name the option; other errors in the block are not changed."""
    buffered = io.BufferedWriter(_Raw(descriptor, path, what))
    file: IO[Any] = buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8", newline="\n")
    try:
        yield file
    except BaseException:
        with contextlib.suppress(Exception):  # the file is discarded, and the error above must not be hidden
            file.close()
        raise
    file.close()


class _Raw(io.FileIO):
    """An unbuffered file whose errors name an option."""

    def __init__(self, descriptor: int, path: str, what: str) -> None:
        super().__init__(descriptor, "wb")
        self._path, self._what = path, what

    @override
    def write(self, data: Any, /) -> int:
        with _told(self._path, self._what):
            return super().write(data)


def umask() -> int:
    """The process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _told(path: str, what: str) -> Iterator[None]:
    """Turn a file system error into one that names the option."""
    try:
        yield
    except BrokenPipeError as error:
        if _descriptor(path) is not None:  # the reader of standard output has closed it, which is no error
            raise
        raise FileError(f"{what}: {path!r} cannot be written: nobody reads it any more") from error
    except OSError as error:
        raise FileError(f"{what}: {path!r} cannot be written: {explain(error)}") from error


def _descriptor(path: str) -> int | None:
    """The descriptor that a path such as /dev/stdout or /dev/fd/3 stands for; None for other paths."""
    for _ in range(40):  # as many links as the kernel follows
        folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
        if os.path.realpath(folder) == f"/proc/{os.getpid()}/fd":
            return int(name) if name.isdigit() else None
        if not os.path.islink(path):  # noqa: PTH114
            return None
        path = os.path.join(folder, os.readlink(path))  # noqa: PTH115, PTH118
    return None


@dataclass(frozen=True, slots=True)
class _Place:
    """The file, stream or device that a path or a descriptor stands for."""

    key: object
    """Equal for two names of the same file."""
    name: str
    is_stream: bool = False
    """Whether its content can be read only once: a pipe, a socket, a terminal."""
    may_be_shared: bool = False
    """Whether it may be input and output at once: a device, such as a terminal or /dev/null, or a socket."""

    @classmethod
    def of(cls, path: str | None, descriptor: int) -> "_Place":
        """The place of a path or, if that is None, of a descriptor."""
        name = ("standard input", "standard output", "standard error")[descriptor] if path is None else repr(path)
        try:
            status = os.fstat(descriptor) if path is None else status_of(path)
        except OSError:  # closed
            return cls(object(), name)
        if status is None:
            return cls(os.path.realpath(str(path)), name)
        is_device, is_socket = stat.S_ISCHR(status.st_mode), stat.S_ISSOCK(status.st_mode)
        is_stream = stat.S_ISFIFO(status.st_mode) or is_socket or (is_device and _is_terminal(status))
        key = object() if is_device and not is_stream else (status.st_dev, status.st_ino)
        return cls(key, name, is_stream, may_be_shared=is_device or is_socket)


def _is_terminal(status: os.stat_result) -> bool:
    """Whether a device is a pseudo-terminal or console (Linux's major numbers 4, 5 and 136 to 143)."""
    return os.major(status.st_rdev) in (4, 5, *range(136, 144))
