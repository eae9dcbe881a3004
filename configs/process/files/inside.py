"""The one place that opens files inside runs, datasets, caches and outputs, which may come from a stranger.

Paths consist of a folder that the caller named, `within`, and what lies inside it. The rules:

- The folder itself, and the way to it, is the caller's choice: it may be a link, as to a scratch disk. Without `within`
  this holds for the folder of the file.
- A file inside is never reached through a link of its own name. What is no regular file (FIFO, device, socket) is
  refused, without waiting for a writer or reader.
- A folder inside, such as `checkpoints`, may be a link when it is read, if the caller or root made that link. Links of
  other users are refused.
- A folder inside is never followed when it is written through `within`: an unpacked run's links belong to the caller,
  whoever made them. Training and launching write without `within`, in folders that their own configuration names.
- What is written anew gets a temporary name that cannot be guessed, and is renamed. A link that has the final name is
  replaced, not followed.

`FileError` says that a file is not what it must be; the file system's other errors stay `OSError`.
"""

import contextlib
import errno
import io
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from configs.process.files import TEMPORARY, FileError

MOST_BYTES = 1 << 28
"""Maximum size of a file that is read as a whole."""
MOST_LEVELS = 100
"""Maximum nesting of lists and mappings in a JSON file; ours have fewer than ten."""

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}
_ALWAYS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def opened(path: Path, flags: int = os.O_RDONLY, *, within: Path | None = None, follow: bool = False) -> int:
    """Open a regular file; returns its descriptor.

    Args:
        path: of the file.
        flags: of `os.open`; the file is made with mode 0666 if they say so.
        within: the folder that the caller named, if folders between it and the file are not the caller's choice.
        follow: the file may be a link: the caller named it, or the folder is one whose files are links by design.

    Raises:
        FileError: it is no regular file, or a link leads to it; see the module's rules.
        OSError: it cannot be opened.
    """
    is_read = flags & os.O_ACCMODE == os.O_RDONLY
    with _folder_of(path, within, follow=is_read) as (folder, name):
        try:
            descriptor = os.open(name, flags | (_ALWAYS & ~os.O_NOFOLLOW if follow else _ALWAYS), 0o666, dir_fd=folder)
        except OSError as error:
            error.filename = str(path)
            if error.errno in (errno.ELOOP, errno.ENXIO):
                _refuse(path, os.stat(name, dir_fd=folder, follow_symlinks=follow).st_mode)
            raise
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        _refuse(path, mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def reading(path: Path, *, within: Path | None = None, follow: bool = False) -> io.BufferedReader:
    """A regular file, open for reading; see `opened`."""
    return os.fdopen(opened(path, within=within, follow=follow), "rb")


def read_bytes(path: Path, *, within: Path | None = None, follow: bool = False, most: int | None = MOST_BYTES) -> bytes:
    """The content of a regular file; see `opened`.

    Args:
        path, within, follow: see `opened`.
        most: bytes that it may have; None: as many as there are, of a file of one's own.

    Raises:
        FileError: it has more.
    """
    with reading(path, within=within, follow=follow) as file:
        content = file.read() if most is None else file.read(most + 1)
    if most is not None and len(content) > most:
        raise FileError(f"{str(path)!r}: has more than {most} bytes, which no such file has")
    return content


def read_text(path: Path, *, within: Path | None = None, errors: str = "strict", most: int | None = MOST_BYTES) -> str:
    """The content of a regular file of UTF-8; see `read_bytes`.

    Raises:
        ValueError: it is not UTF-8.
    """
    return read_bytes(path, within=within, most=most).decode(errors=errors)


def read_json(path: Path, *, within: Path | None = None, follow: bool = False) -> Any:
    """The content of a JSON file; see `opened`.

    Raises:
        ValueError: it is no JSON, or larger or deeper than any file of ours.
    """
    with reading(path, within=within, follow=follow) as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"has more than {MOST_BYTES} bytes")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is no JSON, or deeper than any of ours, which other code could not go through.
    """
    try:
        tree = json.loads(content)
    except RecursionError:
        tree = level = [None]
    else:
        level = [tree]
        for _ in range(MOST_LEVELS + 1):
            if not (level := [value for one in level if isinstance(one, dict | list) for value in _values(one)]):
                break
    if level:
        raise ValueError(f"is deeper than {MOST_LEVELS} levels of lists and mappings")
    return tree


def appending(path: Path, *, within: Path | None = None) -> int:
    """A descriptor that appends to a regular file, which is made if it is not there; see `opened`."""
    return opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, within=within)


@contextlib.contextmanager
def replacing(path: Path, *, within: Path | None = None, sync: bool = False) -> Iterator[io.BufferedRandom]:
    """A new file to write and read; it appears under its name only if the block ends without an error.

    Args:
        path: its name; what had it before is replaced.
        within: see `opened`.
        sync: flush it to the disk before the rename.

    Raises:
        FileError: a folder on the way is a link.
        OSError: it cannot be written.
    """
    with _folder_of(path, within, follow=False) as (folder, name):
        beside = f"{TEMPORARY}{secrets.token_hex(8)}"
        beside = beside if folder is not None else str(path.with_name(beside))
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(beside, flags, 0o666, dir_fd=folder)
        except OSError as error:
            error.filename = str(path)
            raise
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                if sync:
                    os.fsync(descriptor)
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise


def write_bytes(path: Path, content: bytes, *, within: Path | None = None, sync: bool = False) -> None:
    """Write a file as a whole; see `replacing`."""
    with replacing(path, within=within, sync=sync) as file:
        file.write(content)


def write_text(path: Path, text: str, *, within: Path | None = None) -> None:
    """Write a file of UTF-8 as a whole; see `replacing`."""
    write_bytes(path, text.encode(), within=within)


def make_folder(path: Path, *, within: Path) -> None:
    """Make a folder inside another, and those on the way to it.

    Raises:
        FileError: one of them is a link.
        OSError: one cannot be made.
    """
    at = within
    for part in path.relative_to(within).parts:
        at /= part
        with _folder_of(at, within, follow=False) as (folder, name), contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)


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


def check_folder(path: Path, *, within: Path) -> None:
    """Refuse a folder to which a link of another user leads, before anything in it is read.

    Raises:
        FileError: one on the way to it is such a link.
        OSError: it cannot be opened.
    """
    with _folder_of(path / "any", within, follow=True):
        pass


def sync_folder(folder: Path) -> None:
    """Fsync a folder, so that its entries and renames survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def name_of(file: IO[bytes] | int) -> str:
    """A path of an open file, for libraries that open files themselves."""
    return f"/proc/self/fd/{file if isinstance(file, int) else file.fileno()}"


def _values(tree: Any) -> Any:
    return tree.values() if isinstance(tree, dict) else tree


def _refuse(path: Path, mode: int) -> None:
    """Refuse what is no regular file or folder."""
    if (kind := _KINDS.get(stat.S_IFMT(mode))) is not None:
        raise FileError(f"{str(path)!r}: is {kind}; allowed is a plain file")


@contextlib.contextmanager
def _folder_of(path: Path, within: Path | None, *, follow: bool) -> Iterator[tuple[int | None, str]]:
    """The folder of a file, opened by one step at a time from `within`, and the file's name in it."""
    if within is None:
        yield None, str(path)
        return
    *parts, name = path.relative_to(within).parts
    at, folder = os.open(within, _FOLDER), within
    try:
        for part in parts:
            folder /= part
            below = _below(at, part, folder, follow=follow)
            os.close(at)
            at = below
        yield at, name
    finally:
        os.close(at)


def _below(at: int, part: str, shown: Path, *, follow: bool) -> int:
    """Open a folder in an open folder."""
    if part == "..":
        raise FileError(f"{str(shown)!r}: leads out of its folder")
    try:
        descriptor = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except OSError as error:
        error.filename = str(shown)
        raise
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        return descriptor
    try:
        if not stat.S_ISLNK(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(shown))
        if not follow:
            raise FileError(f"{str(shown)!r}: is a link; allowed is a folder, as nothing may be written elsewhere")
        if status.st_uid not in (os.geteuid(), 0):
            raise FileError(
                f"{str(shown)!r}: is a link of another user (uid {status.st_uid}); give the folder that it leads "
                "to, or make the link yourself"
            )
        return os.open(os.readlink("", dir_fd=descriptor), _FOLDER, dir_fd=at)
    finally:
        os.close(descriptor)
