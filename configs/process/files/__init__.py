"""Files and folders that the user names: errors of the file system become one line that says what to do."""

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from configs.errors import UserError
from configs.process.streams import note

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
    except (FileError, OSError) as error:
        if (problem := error if isinstance(error, FileError) else as_file_error(error)) is None:
            raise
        raise FileError(f"{what}: {str(problem).removeprefix(f'{what}: ')}") from error


@contextlib.contextmanager
def disk_errors(what: str, folder: Path) -> Iterator[None]:
    """Turn errors of the disk into one line, for work that stays and that the same command resumes.

    Args:
        what: the option or field that names the folder.
        folder: that is written to.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {folder}: cannot be written: {explain(error)}; the same command resumes") from error


def status_of(path: str | os.PathLike[str]) -> os.stat_result | None:
    """The status of the file or folder at a path; None if there is none.

    Raises:
        FileError: the status cannot be read.
    """
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
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


def put_aside(path: Path, option: str) -> None:
    """Rename what is at a path to NAME.replaced-DATE, and say so: nothing is deleted.

    Args:
        path: of a file or folder, if there is one.
        option: that asks for it.

    Raises:
        OSError: it cannot be renamed.
    """
    if exists(path):
        while exists(new := path.with_name(f"{path.name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}")):
            time.sleep(0.2)
        path.rename(new)
        note(f"{option}: what was in {path} is now in {new}")


def file_in(folder: Path, name: str) -> Path:
    """A file in a folder whose name is made of a language, a tag, a set, a run or a field, whoever has named these.

    Raises:
        FileError: the name leads elsewhere.
    """
    if Path(name).name != name or name in ("", ".."):
        raise FileError(f"{name!r}: names no file in {str(folder)!r}; allowed is a name without slashes")
    return folder / name


def check_apart(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None]) -> None:
    """Check that no output is an input, is in an input folder, or is another output; pipes and devices may be.

    Args:
        inputs: paths by the option or field that names them; None for standard input.
        outputs: the same; None for standard output.

    Raises:
        FileError: two paths are the same file; the message names both.
    """
    used: dict[str, str] = {}
    for named, does in ((inputs, "reads"), (outputs, "writes")):
        for what, path in named.items():
            with naming(what):
                if path is None or (exists(path) and not is_file(path) and not is_dir(path)):
                    continue
            place = os.path.realpath(path)
            for other, use in used.items() if named is outputs else ():
                is_within = use.endswith("reads") and f"{place}/".startswith(f"{other.rstrip('/')}/")
                if place == other or is_within:
                    raise FileError(f"{what}: {path!r} is, or is in, what {use}; give another place")
            used.setdefault(place, f"{what} {does}")
    for what, number in (("standard output", 1), ("standard error", 2)):
        if (use := used.get(os.path.realpath(f"/proc/self/fd/{number}"), "")).endswith("reads"):
            raise FileError(f"{what}: goes to the file that {use}; redirect it to another")
