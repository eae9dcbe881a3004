"""Counts what a process does to the files of a folder, and can kill it before any one of these operations.

Opening to write, making, renaming and removing are seen by Python's audit events; syncing and writing tensors have
none, so the functions themselves are replaced.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from trainer.checkpoint import format as format_

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}


class Operations:
    """What this process does below a folder from now on, until it ends: an audit hook cannot be taken back."""

    def __init__(self, folder: Path, *, kill_before: int | None = None) -> None:
        """Begin.

        Args:
            folder: to watch; it is there already.
            kill_before: number of the operation, counted from 0, before which SIGKILL comes.
        """
        self._folder = folder.resolve()
        self._kill_before = kill_before
        self._busy = False
        self.names: list[str] = []
        vars(os)["fsync"] = self._counted("fsync", os.fsync, 0)
        vars(format_)["save_file"] = self._counted("write", save_file, 1)
        sys.addaudithook(self._on_audit)

    def _counted(self, what: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._on(what, arguments[place])
            return function(*arguments)

        return counted

    def _on_audit(self, event: str, arguments: Sequence[Any]) -> None:
        if event in _CHANGES or (event == "open" and arguments[2] & _WRITES):
            parent = arguments[-1] if event in {"os.remove", "os.rmdir"} else -1
            self._on(event, arguments[0], parent)

    def _on(self, what: str, place: Any, parent: int = -1) -> None:
        if self._busy:
            return
        self._busy = True
        with suppress(OSError, TypeError):
            path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(os.fsdecode(place))
            if parent != -1:
                path = Path(f"/proc/self/fd/{parent}").readlink() / path
            if path == self._folder or self._folder in path.parents:
                if len(self.names) == self._kill_before:
                    os.kill(os.getpid(), signal.SIGKILL)
                self.names.append(f"{what} {path.relative_to(self._folder)}")
        self._busy = False
