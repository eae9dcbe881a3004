"""Files and folders that the user names: what the file system says of them becomes one line that says what to do."""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
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
    """See that no output is an input or another output, by whatever names, links or redirections.

    What is written anyway (pipes, terminals, /dev/null) may be named as often as one likes.

    Args:
        inputs: paths by what the user knows them by; None for standard input.
        outputs: the same; None for standard output.

    Raises:
        FileError: naming both.
    """
    seen: dict[object, str] = {}
    for is_output, named in ((False, inputs), (True, outputs)):
        for what, path in named.items():
            place = _place(path, is_output=is_output)
            if place is None:
                continue
            if is_output and place in seen:
                raise FileError(f"{what}: {_name(path)} is what {seen[place]} names, too; give another file")
            seen.setdefault(place, what)


@contextlib.contextmanager
def written(path: str, what: str, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write, which appears when all went well and not otherwise; what was there stays till then.

    It is opened at once, so that what cannot be written is known before the work. What is no regular file (a pipe, a
    device) is written as it is.

    Args:
        path: of the file; where it is a link, what that leads to.
        what: the option or field that names it, for messages.
        mode: w for text, wb for bytes.

    Raises:
        FileError: it cannot be written.
    """
    found = status_of(path)
    options: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": "\n"}
    if found is not None and not stat.S_ISREG(found.st_mode):
        with _told(path, what), open(path, mode, **options) as file:  # noqa: PTH123
            yield file
        return
    target = Path(os.path.realpath(path))
    with _told(path, what):
        if found is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        descriptor, beside = tempfile.mkstemp(prefix=f".{target.name[:80]}.", dir=target.parent)
    try:
        with _told(path, what):
            with open(descriptor, mode, **options) as file:  # noqa: PTH123
                yield file
            os.chmod(beside, stat.S_IMODE(found.st_mode) if found is not None else 0o666 & ~umask())  # noqa: PTH101
            Path(beside).replace(target)
    finally:
        Path(beside).unlink(missing_ok=True)


def umask() -> int:
    """The process's mask of permissions."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _told(path: str, what: str) -> Iterator[None]:
    """Turn errors about a path, and those without a name, into one that names the option."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FileError(f"{what}: {path!r} cannot be written: {explain(error)}") from error


def _place(path: str | None, *, is_output: bool) -> object | None:
    """What tells a regular file or a folder from others; None for whatever else there is."""
    if path is None:
        try:
            found: os.stat_result | None = os.fstat(1 if is_output else 0)
        except OSError:
            return None
    else:
        found = status_of(path)
    if found is None:
        return os.path.realpath(str(path))
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None


def _name(path: str | None) -> str:
    return "the standard stream" if path is None else repr(path)
