"""Folders that appear with all that belongs in them, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from configs import UserError


def check_new(path: Path) -> None:
    """See that a folder can be made.

    Raises:
        UserError: something is there, or it has no folder to be in.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise UserError(f"-o: {str(path)!r} is a file; allowed is a new or an empty folder")
    if path.is_dir() and any(path.iterdir()):
        raise UserError(f"-o: {str(path)!r} is not empty; allowed is a new or an empty folder")
    if not path.absolute().parent.is_dir():
        raise UserError(f"-o: {str(path.absolute().parent)!r}: no such folder; allowed is one that exists")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write in, beside `path`; renamed to it at the end, removed where something was raised.

    Raises:
        UserError: see `check_new`; or the disk does not take it.
    """
    check_new(path)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f"tmp-{path.name}-", dir=path.absolute().parent))
    except OSError as error:
        raise UserError(f"-o: {str(path)!r} cannot be written: {error.strerror}") from error
    try:
        yield temporary
        mask = _umask()  # mkdtemp's folder, and files of some libraries, are the user's alone
        for file in temporary.rglob("*"):
            file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
        temporary.chmod(0o777 & ~mask)
        temporary.replace(path)
    except OSError as error:
        raise UserError(f"-o: {str(path)!r} cannot be written: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
