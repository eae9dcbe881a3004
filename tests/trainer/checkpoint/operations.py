"""Counts what a process does to the files of a folder, and can kill it before any one of these operations.

Opening to write, making, renaming and removing are seen by Python's audit events; writing and syncing have none, so the
functions themselves are replaced. `Operations.unseen` tells whether the folder changed in a way that none explains.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}

Tree = dict[str, tuple[int, int]]
"""Inode and size by path."""


class Operations:
    """What this process does below a folder from now on, until it ends: an audit hook cannot be taken back."""

    def __init__(self, folder: Path, *, kill_before: int | None = None, watch: bool = False) -> None:
        """Begin.

        Args:
            folder: to watch; it is there already.
            kill_before: number of the operation, counted from 0, before which SIGKILL comes.
            watch: look at the folder before each operation, for `unseen`.
        """
        self._folder = folder.resolve()
        self._kill_before = kill_before
        self._watch = watch
        self._trees: list[Tree] = []
        self._busy = False
        self.names: list[str] = []
        write, fsync = os.write, os.fsync

        def counted_write(descriptor: int, content: Any) -> int:
            self._on("write", _path_of(descriptor))
            return write(descriptor, content)

        def counted_fsync(descriptor: Any) -> None:
            self._on("fsync", _path_of(descriptor))
            fsync(descriptor)

        vars(os).update(write=counted_write, fsync=counted_fsync)
        sys.addaudithook(self._on_audit)

    def unseen(self) -> list[str]:
        """Changes of the folder that are more than one operation can have made."""
        found = []
        states = [*self._trees, _tree(self._folder)]
        for name, before, after in zip(self.names, states[:-1], states[1:], strict=True):
            gone, new = before.keys() - after.keys(), after.keys() - before.keys()
            changed = {p for p in before.keys() & after.keys() if before[p] != after[p]}
            folders = [{p for p in paths if str(Path(p).parent) not in paths} for paths in (gone, new)]
            replaced = name.startswith("os.rename") and not new
            if max(map(len, folders)) > 1 or len(changed) > 1 or (changed and (gone or new) and not replaced):
                found.append(f"{name}: gone {gone}, new {new}, changed {changed}")
        return found

    def _on_audit(self, event: str, arguments: Sequence[Any]) -> None:
        if self._busy:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & _WRITES:
                self._on("open", os.fsdecode(path))
        elif event in _CHANGES:
            path = os.fsdecode(arguments[0]) if not isinstance(arguments[0], int) else _path_of(arguments[0])
            parent = arguments[-1] if event in {"os.remove", "os.rmdir"} else -1
            self._on(event, path if parent in (-1, None) else f"{_path_of(parent)}/{path}")

    def _on(self, what: str, path: str) -> None:
        self._busy = True
        try:
            absolute = Path(path).absolute()
            if absolute != self._folder and self._folder not in absolute.parents:
                return
            if len(self.names) == self._kill_before:
                os.kill(os.getpid(), signal.SIGKILL)
            self.names.append(f"{what} {absolute.relative_to(self._folder)}")
            if self._watch:
                self._trees.append(_tree(self._folder))
        finally:
            self._busy = False


def _path_of(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


def _tree(folder: Path) -> Tree:
    return {
        str(p.relative_to(folder)): (p.lstat().st_ino, p.lstat().st_size if p.is_file() else 0)
        for p in folder.rglob("*")
    }
