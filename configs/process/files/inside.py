"""The door: the one place that opens what a run, a dataset, a model folder or an output holds, who ever made it.

Reading follows links, as every program does. Writing never does: a new file gets a name that cannot be guessed and is
renamed, and a link where it goes is refused. What is not a regular file (FIFO, device, socket) is refused, without
waiting for a writer or reader. Nothing is unpickled.

`FileError` says that a file is not what it must be; the file system's other errors stay `OSError`.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from configs.process.files import TEMPORARY, FileError, explain, naming, status_of

MOST_BYTES = 1 << 28
"""Maximum size of a file that is read as a whole."""
MOST_LEVELS = 100
"""Maximum nesting of lists and mappings in a JSON file; ours have fewer than ten."""

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_WHILE_WRITING = [(None, code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)]
"""Errors that name no file."""


def opened(path: Path, mode: str = "rb", buffering: int = -1) -> Any:
    """Open a regular file, as Python's `open` does: a link only to read it.

    Raises:
        FileError: it is not a regular file, or is a link that would be written through.
        OSError: it cannot be opened.
    """
    if mode != "rb":
        refuse_link(path)
    with contextlib.suppress(FileNotFoundError):
        if (kind := _KINDS.get(stat.S_IFMT(path.stat().st_mode))) is not None:
            raise FileError(f"{str(path)!r}: is {kind}; allowed is a plain file")
    return open(path, mode, buffering, None if "b" in mode else "utf-8", opener=_at_once)


def _at_once(name: str, flags: int) -> int:
    """Without waiting for a writer or reader, whatever has come there meanwhile."""
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def refuse_link(path: Path) -> None:
    """Refuse to write where a link is.

    Raises:
        FileError: there is one.
    """
    if path.is_symlink():
        raise FileError(f"{str(path)!r}: is a link, through which nothing is written; name what it leads to")


def read_bytes(path: Path, *, most: int | None = MOST_BYTES) -> bytes:
    """The content of a regular file; see `opened`.

    Args:
        path: of the file.
        most: bytes that it may have; None: as many as there are, of a file of one's own.

    Raises:
        FileError: it has more.
    """
    with opened(path) as file:
        content: bytes = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise FileError(f"{str(path)!r}: has more than {most} bytes, which no such file has")
    return content


def read_text(path: Path, *, errors: str = "strict", most: int | None = MOST_BYTES) -> str:
    """The content of a regular file of UTF-8; see `read_bytes`.

    Raises:
        ValueError: it is not UTF-8.
    """
    return read_bytes(path, most=most).decode(errors=errors)


def read_json(path: Path) -> Any:
    """The content of a JSON file; see `read_bytes`.

    Raises:
        ValueError: it is not JSON, or deeper than any file of ours.
    """
    return parse_json(read_bytes(path))


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or deeper than any of ours, which other code could not go through.
    """
    try:
        tree = json.loads(content)
        _check_depth(tree, MOST_LEVELS)
    except RecursionError as error:
        raise ValueError(f"is deeper than {MOST_LEVELS} levels of lists and mappings") from error
    return tree


def _check_depth(tree: Any, most: int) -> None:
    if not most:
        raise RecursionError
    for value in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        if isinstance(value, dict | list):
            _check_depth(value, most - 1)


@contextlib.contextmanager
def replacing(path: Path, mode: str = "x+b", *, sync: bool = False) -> Iterator[Any]:
    """A new file to write and read; it appears under its name only if the block ends without an error.

    Args:
        path: its name; a regular file that had it before is replaced.
        mode: `x+b`, or `x` for text.
        sync: flush it to the disk before the rename.

    Raises:
        FileError: a link has the name.
        OSError: it cannot be written.
    """
    refuse_link(path)
    beside = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with opened(beside, mode) as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename = str(path)
        raise


def write_bytes(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a file as a whole; see `replacing`."""
    with replacing(path, sync=sync) as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a file of UTF-8 as a whole; see `replacing`."""
    write_bytes(path, text.encode())


@contextlib.contextmanager
def written(path: str, what: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Write a file that the user names, as `replacing` does; a pipe, a device or /dev/stdout is written directly.

    It is opened at once, so that a path that cannot be written is reported before the work.

    Args:
        path: of the file.
        what: the option or field that names it, for messages.
        mode: w for text, wb for bytes.

    Raises:
        FileError: the file cannot be written. Other errors in the block are not changed.
    """
    stream, target = re.fullmatch(r"/dev/(?:fd/(\d+)|std(?:out|err))", path), Path(path)
    with naming(what):
        status = status_of(path)
        is_plain = stream is None and (status is None or stat.S_ISREG(status.st_mode))
        if is_plain:
            refuse_link(target)
        if is_plain and status is not None:
            os.close(os.open(target, os.O_WRONLY | os.O_CLOEXEC))  # raises an error if it must not be written
    try:
        if is_plain:
            sink: contextlib.AbstractContextManager[IO[Any]] = replacing(target, mode.replace("w", "x"))
        else:
            place = path if stream is None else os.dup(int(stream[1] or (1 if path == "/dev/stdout" else 2)))
            sink = open(place, mode, encoding=None if "b" in mode else "utf-8")  # noqa: PTH123, SIM115
        with sink as file:
            if is_plain and status is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            yield file
    except OSError as error:
        is_named = error.filename in (path, str(target))
        is_ours = stream is None and (error.filename, error.errno) in _WHILE_WRITING
        if not (is_named or is_ours):
            raise
        raise FileError(f"{what}: {path!r} cannot be written: {explain(error)}") from error


def look_again(folder: Path) -> bool:
    """Whether a folder is there by now, that another machine may have made since this one looked; see `is_listed`.

    What is made through a client is no longer remembered as absent there. So a folder that its parent lists is made.
    """
    with contextlib.suppress(OSError):
        if not folder.exists() and look_again(folder.parent) and is_listed(folder):
            folder.mkdir()
    return folder.exists()


def is_listed(path: Path) -> bool:
    """Whether a file is there, as its folder says.

    A client of NFS remembers for 30 to 60 s that a file was not there. A folder that is listed is asked for anew.
    """
    try:
        return path in path.parent.iterdir()
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that its entries and renames survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_of(file: IO[bytes]) -> str:
    """A path of an open file, for libraries that open files themselves."""
    return f"/proc/self/fd/{file.fileno()}"
