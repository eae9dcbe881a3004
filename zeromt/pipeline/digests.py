"""What identifies a result or an input: hashes that its maker has left, else one of its content. Never a time.

Files are read again only if size, inode or time of change differ from what they were when they were last read; equal
content then has an equal digest, and nothing is done again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from configs.errors import UserError
from configs.process.files import disk_errors, explain, inside
from configs.process.text import digest
from data_pipeline.prepared.index import INDEX_FILE
from trainer.runs.layout import CHECKPOINTS, MANIFEST, list_steps, model_identity
from zeromt.translating.options import is_corpus

_BLOCK = 1 << 20


class Digests:
    """Digests of paths; those of plain files are remembered in a file."""

    def __init__(self, memory: Path) -> None:
        """Make one.

        Args:
            memory: the file with what is remembered; it may be missing.
        """
        self._memory = memory
        self._known: dict[str, Any] = {}
        self._is_changed = False
        with contextlib.suppress(OSError, ValueError, UserError):
            self._known = dict(inside.read_json(memory))

    def of(self, path: Path) -> str | None:
        """The digest of a file or folder; None if nothing is there.

        A dataset is its index, which has the hash of each shard; a run its newest checkpoint, and a checkpoint the
        hashes of weights and vocabulary in its manifest; a translated corpus what its merge has written; a YAML file
        its values, so that comments do not count. Of any other folder it is the content of all files.
        """
        if path.is_file():
            return self._file(path)
        if not path.is_dir():
            return None
        left = {path / INDEX_FILE: _index, path / MANIFEST: _checkpoint}
        for file, read in left.items():
            if file.is_file():
                return read(file)
        if (path / CHECKPOINTS).is_dir():
            return _run(path)
        files = sorted(path.glob("*.txt")) if is_corpus(str(path)) else _files(path)
        return digest([[str(one.relative_to(path)), self._file(one)] for one in files])

    def save(self) -> None:
        """Remember the digests of files."""
        if self._is_changed:
            with disk_errors("output", self._memory.parent):
                inside.write_text(self._memory, json.dumps(self._known))
            self._is_changed = False

    def _file(self, path: Path) -> str:
        try:
            return self._known_or_read(path)
        except OSError as error:
            raise UserError(
                f"{str(path)!r}: cannot be read: {explain(error)}; an input is a file or a folder"
            ) from error

    def _known_or_read(self, path: Path) -> str:
        status = path.stat()
        state = [status.st_size, status.st_ino, status.st_mtime_ns]
        known = self._known.get(str(path))
        if known is None or known[0] != state:
            known = self._known[str(path)] = [state, _content(path)]
            self._is_changed = True
        return str(known[1])


def _content(path: Path) -> str:
    if path.suffix in (".yaml", ".yml"):
        with contextlib.suppress(yaml.YAMLError, UnicodeError, TypeError, ValueError):
            return digest(yaml.safe_load(path.read_text(encoding="utf-8")))
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (one for name in sorted(names) if (one := Path(root, name)).is_file())


def _index(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _checkpoint(path: Path) -> str:
    return digest(model_identity(path.parent))


def _run(path: Path) -> str | None:
    """Of its newest checkpoint."""
    for step in list_steps(path / CHECKPOINTS):
        if (step / MANIFEST).is_file():
            return _checkpoint(step / MANIFEST)
    return None
