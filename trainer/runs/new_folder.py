"""Folders that appear complete or not at all."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from configs import UserError
from configs.process.files import check_apart, exists, explain, is_dir, naming, put_aside
from trainer.runs.layout import TEMPORARY


def check_new(path: Path, inputs: Mapping[str, str | None] | None = None, *, replaces: bool = False) -> None:
    """Check, before the work, that a folder can be made.

    Args:
        path: of the folder.
        inputs: what the command reads; see `configs.process.files.check_apart`.
        replaces: a folder that is there will be renamed.

    Raises:
        UserError: something exists there, it cannot be made, or it is inside an input.
    """
    with naming("-o"):
        is_folder = is_dir(path)
        if path.is_symlink() or exists(path) > is_folder:
            raise UserError(f"-o: {str(path)!r} is a link or a file; give a new or an empty folder")
        if not is_dir(path.absolute().parent):
            raise UserError(f"-o: {str(path.absolute().parent)!r}: no such folder; give one that exists")
    try:
        if is_folder and any(path.iterdir()) and not replaces:
            raise UserError(f"-o: {str(path)!r} is not empty; give a new or an empty folder, or --replace")
        if is_folder and (os.path.ismount(path) or path.samefile(Path.cwd())):
            raise UserError(f"-o: {str(path)!r} is a mount point or the current folder; give a new folder in it")
        _beside(path).rmdir()
    except OSError as error:
        raise _unwritable(path, error) from error
    check_apart(inputs or {}, {"-o": str(path)})
    for what, name in (inputs or {}).items() if replaces else ():
        if name is not None and os.path.realpath(name).startswith(f"{os.path.realpath(path)}/"):
            raise UserError(f"-o: {str(path)!r} holds what {what} reads; give another place")


@contextmanager
def new_folder(path: Path, *, replaces: bool = False) -> Iterator[Path]:
    """A temporary folder next to `path`; renamed to it at the end, removed on an error.

    Args:
        path: of the folder.
        replaces: rename what is there before.

    Raises:
        UserError: see `check_new`; or the disk does not take it.
    """
    check_new(path, replaces=replaces)
    temporary = _beside(path)
    try:
        yield temporary
        os.umask(mask := os.umask(0))  # mkdtemp's folder, and files of some libraries, are readable by the user only
        for file in temporary.rglob("*"):
            file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
        temporary.chmod(0o777 & ~mask)
        if replaces:
            put_aside(path, "--replace")
        temporary.replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error
    except SafetensorError as error:  # in Rust's words
        raise _unwritable(path, as_os_error(error, path)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def as_os_error(error: SafetensorError, path: Path) -> OSError:
    """The operating system's error in one of safetensors.

    Raises:
        SafetensorError: it is another error.
    """
    if (code := re.search(r"(?:code: |os error )(\d+)", str(error))) is None:
        raise error
    return OSError(int(code[1]), os.strerror(int(code[1])), str(path))


def _beside(path: Path) -> Path:
    """A folder that can be renamed to the path. Its name is short, as the path's own may have the maximum length."""
    return Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.absolute().parent))


def _unwritable(path: Path, error: OSError) -> UserError:
    at = error.filename
    where = f" ({at})" if isinstance(at, str) and TEMPORARY not in at and Path(at) != path else ""
    return UserError(f"-o: {str(path)!r} cannot be written: {explain(error)}{where}")
