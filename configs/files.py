"""Files and folders that the user names: what the file system says of them becomes one line that says what to do."""

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

from configs.errors import UserError

_ADVICE = {
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "its links lead in a circle; mend them",
    errno.ENOTDIR: "a file stands where a folder should; move it or give another name",
    errno.EISDIR: "it is a folder; give a file",
    errno.EEXIST: "something of that name is there; move it or give another name",
    errno.EACCES: "change its permissions or give another place",
    errno.EPERM: "change its permissions or give another place",
    errno.EROFS: "give a place that can be written",
    errno.ENOSPC: "make room, or give another place",
    errno.EDQUOT: "make room, or give another place",
    errno.ENOENT: "no such file or folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_USERS = (
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
"""What the user can mend before anything is tried again."""


TEMPORARY = ".zeromt-"
"""What the names of files that are being written begin with."""


class FileError(UserError):
    """A file or folder that the user named cannot be used."""


def explain(error: OSError) -> str:
    """What an error of the file system says, and what to do about it; without the file's name."""
    said = error.strerror or str(error) or type(error).__name__
    advice = _ADVICE.get(error.errno or 0)
    return said if advice is None or advice.lower() == said.lower() else f"{said}; {advice}"


def describe(error: OSError) -> str:
    """`explain`, behind the name of the file where it is known."""
    names = " -> ".join(repr(os.fspath(n)) for n in (error.filename, error.filename2) if isinstance(n, str | bytes))
    return f"{names}: {explain(error)}" if names else explain(error)


def problem_of(error: OSError) -> FileError | None:
    """An error of the file system as one of the user's; None where it is none, or names no file."""
    return FileError(describe(error)) if error.errno in _USERS and error.filename is not None else None


def expand(name: str) -> str:
    """A path as the user means it: `~` is the home folder, as in a shell.

    Raises:
        FileError: there is no such user, or no path.
    """
    if "\0" in name:
        raise FileError(f"{name!r}: holds a NUL character; give a path without")
    if not name.startswith("~"):
        return name
    try:
        return str(Path(name).expanduser())
    except RuntimeError as error:
        raise FileError(f"{name!r}: no such home folder; write the path out, or ./~ for that name") from error


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Put an option or a field in front of what the file system says.

    Raises:
        FileError: something was said that the user can mend.
    """
    try:
        yield
    except FileError as error:
        said = str(error)
        raise FileError(said if said.startswith(f"{what}:") else f"{what}: {said}") from error
    except OSError as error:
        if (problem := problem_of(error)) is None:
            raise
        raise FileError(f"{what}: {problem}") from error


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """What is at a path; None where nothing is.

    Raises:
        FileError: that cannot be told.
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
        raise FileError(f"{os.fspath(path)!r}: {error}; give a path without") from error


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether something is there; see `status_of`."""
    return status_of(path) is not None


def is_dir(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is there; see `status_of`."""
    found = status_of(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is there; see `status_of`."""
    found = status_of(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def check_apart(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]) -> None:
    """See that no path of a command is two things: by whatever names, links or redirections.

    Nothing may be written to an input or into an input folder, or twice to one place. A stream (a pipe, a terminal) can
    be read once. Standard output and error are outputs whether or not they are named; they may be one. Devices such as
    /dev/null may be named as often as one likes.

    Args:
        inputs: paths by what the user knows them by; None for standard input.
        outputs: the same; None for standard output.

    Raises:
        FileError: naming both.
    """
    seen: dict[object, str] = {}
    for what, path in inputs.items():
        with naming(what):
            place = _Place.of(path, 0)
        if place.is_stream and place.key in seen:
            raise FileError(f"{what}: {place.name} is what {seen[place.key]}, too; give another")
        seen.setdefault(place.key, f"{what} reads")
    folders = [(what, os.path.realpath(path)) for what, path in inputs.items() if path is not None and is_dir(path)]
    for what, path in outputs.items():
        with naming(what):
            place = _Place.of(path, 1)
        if place.key in seen and not place.may_be_shared:
            raise FileError(f"{what}: {place.name} is what {seen[place.key]}, too; give another file")
        for other, folder in folders:
            if path is not None and f"{os.path.realpath(path)}/".startswith(f"{folder.rstrip('/')}/"):
                raise FileError(f"{what}: {place.name} is in {folder!r}, which {other} reads; give another place")
        if not place.may_be_shared:
            seen[place.key] = f"{what} writes"
    own = {_Place.of(path, 1).key for path in outputs.values() if path is None or _descriptor(path) is not None}
    for what, number in (("standard output", 1), ("standard error", 2)):
        place = _Place.of(None, number)
        if place.key in seen and place.key not in own and not place.is_stream:
            raise FileError(f"{what}: is sent to the file that {seen[place.key]}; send it to another")


@contextlib.contextmanager
def written(path: str, what: str, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write, which appears when all went well and not otherwise; what was there stays till then.

    It is opened at once, so that what cannot be written is known before the work. What is no regular file (a pipe, a
    device) is written as it is, and so is an open stream of this process, such as /dev/stdout.

    Args:
        path: of the file; where it is a link, what that leads to.
        what: the option or field that names it, for messages.
        mode: w for text, wb for bytes.

    Raises:
        FileError: it cannot be written. Errors of anything else are left as they are.
    """
    with naming(what):
        found, descriptor = status_of(path), _descriptor(path)
    if descriptor is not None or (found is not None and not stat.S_ISREG(found.st_mode)):
        with _told(path, what):
            raw = os.dup(descriptor) if descriptor is not None else os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        with _opened(raw, path, what, mode) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    with _told(path, what):
        if found is not None:
            os.close(os.open(target, os.O_WRONLY))  # whether it may be written at all
        raw, beside = _temporary(target)
    try:
        with _opened(raw, path, what, mode) as file:
            yield file
        with _told(path, what):
            os.chmod(beside, stat.S_IMODE(found.st_mode) if found is not None else 0o666 & ~umask())  # noqa: PTH101
            try:
                Path(beside).replace(target)
            except OSError:  # a mount point, or a file that may be written in a folder that may not
                if found is None:
                    raise
                shutil.copyfile(beside, target)
    finally:
        Path(beside).unlink(missing_ok=True)


def _temporary(target: Path) -> tuple[int, str]:
    """A new file, open: beside the target, or in the system's folder where that may not be written and the file may."""
    try:
        return tempfile.mkstemp(prefix=TEMPORARY, dir=target.parent)
    except OSError as error:
        if target.exists() and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return tempfile.mkstemp(prefix=TEMPORARY)
        raise


@contextlib.contextmanager
def _opened(descriptor: int, path: str, what: str, mode: str) -> Iterator[IO[Any]]:
    """A file on a descriptor whose own errors name it; those of whoever writes to it are left as they are."""
    buffered = io.BufferedWriter(_Raw(descriptor, path, what))
    file: IO[Any] = buffered if "b" in mode else io.TextIOWrapper(buffered, encoding="utf-8", newline="\n")
    try:
        yield file
    except BaseException:
        with contextlib.suppress(Exception):  # what it holds is of no use, and what was raised matters more
            file.close()
        raise
    file.close()


class _Raw(io.FileIO):
    """Unbuffered, with an option's name in its errors."""

    def __init__(self, descriptor: int, path: str, what: str) -> None:
        super().__init__(descriptor, "wb")
        self._path, self._what = path, what

    def write(self, data: Any, /) -> int:
        """See `io.FileIO`."""
        with _told(self._path, self._what):
            return super().write(data)


def umask() -> int:
    """The process's mask of permissions."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _told(path: str, what: str) -> Iterator[None]:
    """Turn what the file system says into an error that names the option."""
    try:
        yield
    except BrokenPipeError as error:
        if _descriptor(path) is not None:  # whoever reads standard output has enough
            raise
        raise FileError(f"{what}: {path!r} cannot be written: nobody reads it any more") from error
    except OSError as error:
        raise FileError(f"{what}: {path!r} cannot be written: {explain(error)}") from error


def _descriptor(path: str) -> int | None:
    """The open file of this process that a path such as /dev/stdout or /dev/fd/3 names; None where it names another."""
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
    """What a path or a descriptor stands for."""

    key: object
    """The same for two names of one thing."""
    name: str
    is_stream: bool = False
    """What is read from it is gone: a pipe, a socket, a terminal."""
    may_be_shared: bool = False
    """By what is read and what is written: a device, such as a terminal or /dev/null, or a socket."""

    @classmethod
    def of(cls, path: str | None, descriptor: int) -> "_Place":
        """Of a path; of a descriptor where that is None."""
        name = ("standard input", "standard output", "standard error")[descriptor] if path is None else repr(path)
        try:
            found = os.fstat(descriptor) if path is None else status_of(path)
        except OSError:  # closed
            return cls(object(), name)
        if found is None:
            return cls(os.path.realpath(str(path)), name)
        is_device, is_socket = stat.S_ISCHR(found.st_mode), stat.S_ISSOCK(found.st_mode)
        is_stream = stat.S_ISFIFO(found.st_mode) or is_socket or (is_device and _is_terminal(found))
        key = object() if is_device and not is_stream else (found.st_dev, found.st_ino)
        return cls(key, name, is_stream, may_be_shared=is_device or is_socket)


def _is_terminal(found: os.stat_result) -> bool:
    """Of a device: pseudo-terminals and consoles (major numbers 4, 5 and 136 to 143 of Linux)."""
    return os.major(found.st_rdev) in (4, 5, *range(136, 144))
