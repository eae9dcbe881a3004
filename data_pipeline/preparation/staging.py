"""The inputs of a preparation, its work folder, and the place of its output.

The work folder is next to the output, so that an interrupted preparation resumes, and machines that share a file system
can each prepare a part.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from configs import PrepareSection, UserError
from configs.process.files import TEMPORARY, check_apart, exists, inside, is_dir, naming, status_of
from data_pipeline.preparation.lines import corpus_paths
from data_pipeline.prepared.index import INDEX_FILE, check_local, hash_file

SPLITS = ("train", "valid", "test")
DISCARDED = "discarded-"


class Input(NamedTuple):
    """A corpus file, in the state in which it was first seen."""

    split: str
    """Where it is named in `prepare`: train, valid or test, or the field of another file that decides the dataset."""
    path: Path
    name: str
    bytes: int
    mtime_ns: int
    sha256: str


def inspect_inputs(section: PrepareSection) -> list[Input]:
    """All input files with sizes and hashes.

    Raises:
        UserError: an input is missing, unreadable or empty.
    """
    inputs: list[Input] = []
    for place, given, may_be_folder in _named_files(section):
        for path in _files_in(given, place, may_be_folder=may_be_folder):
            try:
                status = path.stat()
                name = f"{given.name}/{path.relative_to(given)}" if path != given else path.name
                inputs.append(Input(place, path, name, status.st_size, status.st_mtime_ns, hash_file(path)))
            except OSError as error:
                raise UserError(f"prepare.{place}: {path}: cannot be read: {error.strerror}") from error
    return inputs


def _named_files(section: PrepareSection) -> Iterator[tuple[str, Path, bool]]:
    """The field, the path, and whether this may be a folder, of the corpus and of what scores and filters depend on."""
    for split in SPLITS:
        corpus = getattr(section, split)
        yield from ((split, path, corpus.reader.takes_folders) for path in corpus_paths(corpus, section.root))
    for name, command in section.scores.items():
        yield from ((f"scores.{name}.depends", Path(path), True) for path in command.depends)
    for number, filter_ in enumerate(section.filters):
        yield from ((f"filters.{number}.depends", Path(path), True) for path in filter_.depends_on())


def _files_in(given: Path, place: str, *, may_be_folder: bool) -> list[Path]:
    """The file of a path; several if it is a folder."""
    with naming(f"prepare.{place}"):
        status = status_of(given)
    if status is None:
        raise UserError(f"prepare.{place}: {given}: no such file")
    if stat.S_ISDIR(status.st_mode) and may_be_folder:
        return sorted(path for path in given.rglob("*") if path.is_file())
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"prepare.{place}: {given}: is not a file that can be read several times; give a plain file")
    if status.st_size == 0 and not may_be_folder:
        raise UserError(f"prepare.{place}: {given}: is empty; it must have at least one line")
    return [given]


def check_unchanged(inputs: list[Input]) -> None:
    """Raise if an input has changed while it was read.

    Raises:
        UserError: naming the file.
    """
    for file in inputs:
        status = file.path.stat()
        if (status.st_size, status.st_mtime_ns) != (file.bytes, file.mtime_ns):
            raise UserError(f"prepare.{file.split}: {file.path}: was changed while it was read; prepare again")


def place_of(name: str) -> Path:
    """The final path of a dataset, with links resolved, to which a folder can be renamed.

    Raises:
        UserError: no folder can be renamed to it, or it is a URL.
    """
    check_local(name)
    status_of(name)  # this may raise too
    output = Path(os.path.realpath(name)) if Path(name).is_symlink() else Path(name)
    if os.path.realpath(output) == os.path.realpath(Path.cwd()):
        raise UserError(f"prepare.output: {name!r} is the current folder; give a folder in it, such as data/prepared")
    if os.path.ismount(output):
        raise UserError(f"prepare.output: {name!r} is a mount point; give a folder in it")
    return output


def check_places(section: PrepareSection, output: Path) -> None:
    """Check, before reading the corpus, that the output is outside it and can be written.

    Raises:
        UserError: it cannot be written, or is inside an input folder.
    """
    inputs: dict[str, str | None] = {}
    for place, path, may_be_folder in _named_files(section):
        with naming(f"prepare.{place}"):
            if place in SPLITS and (may_be_folder or not is_dir(path)):  # a later check refuses other folders
                inputs[f"prepare.{place} ({path})"] = str(path)
    check_apart(inputs, {"prepare.output": str(output)})
    folder = output.absolute().parent
    while not exists(folder):
        folder = folder.parent
    if not exists(output / INDEX_FILE) and not os.access(folder, os.W_OK):
        raise UserError(f"prepare.output: {output}: cannot be written; give a folder in one that can")


class WorkFolder(NamedTuple):
    """The folder in which a preparation works until its dataset is complete."""

    root: Path

    @classmethod
    def beside(cls, output: Path) -> "WorkFolder":
        """The work folder of an output; it need not exist yet."""
        return cls(output.absolute().with_name(f".{output.name}.preparing"))

    def folder_of(self, recipe: Mapping[str, Any]) -> Path:
        """The folder of a recipe with this version of zeromt; it need not exist yet."""
        content = json.dumps([metadata.version("zeromt"), recipe], sort_keys=True)
        return self.root / hashlib.sha256(content.encode()).hexdigest()[:16]

    def remove_others(self, folder: Path) -> None:
        """Remove the remains of preparations with other recipes, which cannot be resumed here."""
        for path in self.root.iterdir():
            if path.is_dir() and path != folder:
                discard(path)

    def remove(self) -> None:
        """Remove everything."""
        for path in self.root.iterdir():
            if path.is_dir():
                discard(path)
        shutil.rmtree(self.root, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self, output: Path, *, shared: bool, name: str = "lock", wait: bool = False) -> Iterator[None]:
        """Hold a lock on the folder; the system releases it when the process ends, in whatever way.

        Raises:
            UserError: another process holds it and `wait` is not set, or the folder cannot be made.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with inside.opened(self.root / name, "a") as file:
                try:
                    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError as error:
                    raise UserError(f"prepare.output: {output} is being prepared by another process") from error
                except OSError as error:  # a file system without locks: every step still ends with a rename
                    if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                        raise
                yield
        except OSError as error:
            if self.root.is_dir():
                raise
            raise UserError(f"prepare.output: {output}: cannot be written: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Fsync a folder's entries and its files' contents."""
    for path in (p for p in folder.iterdir() if p.is_file()):
        with inside.opened(path) as file:
            os.fsync(file.fileno())
    inside.sync_folder(folder)


def discard(folder: Path) -> None:
    """Remove a recipe's folder. It is renamed first, so that a half-removed folder cannot be resumed."""
    with contextlib.suppress(OSError):
        folder = folder.rename(folder.with_name(f"{DISCARDED}{folder.name}"))
    shutil.rmtree(folder, ignore_errors=True)


def remove_partial(folder: Path) -> None:
    """Remove partial files of killed processes in a work folder. No other process may be working there."""
    for path in (*folder.rglob("*.tmp"), *folder.rglob(f"{TEMPORARY}*")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
