"""OUT: what a corpus is translated in.

```text
job.json               what is translated by what; written last of what a first part begins with
lines.bin              the chunks of the input (source.py)
chunks/000/000123.jsonl.zst   a finished chunk (records.py); what is there is the progress
parts/3-of-16.json     how far a part is, for people; parts/3-of-16.lock is held while it works
translations.txt       made by --merge, and translations.source.txt and translations.scores.txt beside it
```
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files import disk_errors, exists, explain, inside
from configs.process.text import digest
from zeromt.translating.corpus.options import JOB_FILE
from zeromt.translating.corpus.source import Corpus, sizes, survey

_TABLE, _CHUNKS, _PARTS, _BEGINNING = "lines.bin", "chunks", "parts", "begin.lock"
_IN_A_FOLDER = 1000
"""Chunks in a folder, for file systems that are slow with many."""
_DECIDING = ("chunk_lines", "candidates", "mbr", "engine")
"""Keys of job.json that decide what is translated, and how."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Part:
    """What one of N machines translates: every N-th chunk."""

    number: int
    """From 1."""
    of: int

    def chunks(self, number: int) -> range:
        """Its chunks, of so many."""
        return range(self.number - 1, number, self.of)

    @property
    def name(self) -> str:
        """For files and people."""
        return f"{self.number}-of-{self.of}"


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """What a corpus is translated in, and by what."""

    root: Path
    corpus: Corpus
    tree: Mapping[str, Any]
    """The content of job.json."""

    @property
    def identity(self) -> str:
        """The hash of what every chunk must have been made with: the input's text, and all settings."""
        return digest([self.tree["input"]["sha256"], *(self.tree[name] for name in _DECIDING)])

    def path(self, chunk: int) -> Path:
        """The file of a chunk."""
        return self.root / _CHUNKS / f"{chunk // _IN_A_FOLDER:03d}" / f"{chunk:06d}.jsonl.zst"


def begin(root: Path, files: Sequence[Path], given: Mapping[str, Any], *, is_merge: bool) -> Job:
    """Open a folder, or begin it with the first part that comes.

    Args:
        root: OUT.
        files: the input.
        given: what decides the translations: lines of a chunk, candidates of a line, their order, and the engine.
        is_merge: whether nothing is to be begun.

    Raises:
        UserError: it was begun with something else, or is no such folder.
    """
    file, bytes_now = root / JOB_FILE, sizes(files)
    if not exists(file):
        if is_merge:
            raise UserError(f"-o: {str(root)!r} has no {JOB_FILE}: no part was begun there; run `--part I/N` first")
        if root.exists() and not root.is_dir():
            raise UserError(f"-o: {str(root)!r} is a file; give a folder")
        with disk_errors("-o", root), locked(root, _BEGINNING, wait=True):
            if not exists(file):
                (root / _PARTS).mkdir(parents=True, exist_ok=True)
                survey(files, root / _TABLE, given["chunk_lines"])
                tree = {**given, "input": _described(Corpus(files, root / _TABLE), bytes_now)}
                inside.write_bytes(file, f"{json.dumps(tree, indent=1, ensure_ascii=False)}\n".encode(), sync=True)
                inside.sync_folder(root)
    tree = read_job(root)
    _must_agree(tree, given, root)
    _same_files(tree, files, bytes_now)
    return Job(root=root, corpus=Corpus(files, root / _TABLE), tree=tree)


def read_job(root: Path) -> dict[str, Any]:
    """The content of job.json.

    Raises:
        UserError: there is none, or it is corrupt.
    """
    try:
        tree = inside.read_json(root / JOB_FILE)
        if missing := {*_DECIDING, "input"} - set(tree):
            raise ValueError(missing)
    except OSError as error:
        raise UserError(f"-o: {str(root / JOB_FILE)!r} cannot be read: {explain(error)}") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"-o: {str(root / JOB_FILE)!r} is corrupt; give another -o") from error
    return dict(tree)


def table_of(root: Path) -> Path:
    """The table of the input's chunks."""
    return root / _TABLE


def finished(root: Path) -> Iterator[int]:
    """The numbers of the chunks that are there."""
    for folder in sorted((root / _CHUNKS).glob("[0-9]*")):
        for name in os.listdir(folder):  # noqa: PTH208
            if name.endswith(".jsonl.zst") and name.partition(".")[0].isdigit():
                yield int(name.partition(".")[0])


@contextlib.contextmanager
def locked(root: Path, name: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a lock in the folder; the system releases it when the process ends, in whatever way.

    Raises:
        UserError: another process holds it, and `wait` is not set.
    """
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with inside.opened(root / name, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            what = Path(name).stem.replace("-of-", "/")
            raise UserError(f"--part: {what} of {str(root)!r} is being translated by another process") from error
        except OSError as error:  # a file system without locks: every chunk still ends with a rename
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
        yield


@contextlib.contextmanager
def working(root: Path, part: Part) -> Iterator[None]:
    """Hold the lock of a part."""
    with locked(root, f"{_PARTS}/{part.name}.lock"):
        yield


class PartsProgress:
    """How far a part is, in a file that `zeromt status` reads."""

    def __init__(self, root: Path, part: Part, *, total: int, done: int) -> None:
        self._path = root / _PARTS / f"{part.name}.json"
        self._last = now = time.time()
        self._tree = {"total": total, "before": done, "done": done, "begun": now, "chunk_seconds": 0.0}
        self._write(now)

    def advance(self, lines: int) -> None:
        """Add the lines of a finished chunk."""
        now = time.time()
        self._tree["done"] += lines
        self._tree["chunk_seconds"] = now - self._last
        self._last = now
        self._write(now)

    def _write(self, now: float) -> None:
        inside.write_text(self._path, json.dumps({**self._tree, "updated": now}))


def parts_progress(root: Path) -> list[dict[str, Any]]:
    """What the files of the parts say, without those that cannot be read."""
    found = []
    for path in sorted((root / _PARTS).glob("*-of-*.json")):
        with contextlib.suppress(OSError, ValueError, UserError):
            found.append({"name": path.stem, **inside.read_json(path)})
    return found


def _described(corpus: Corpus, bytes_now: Sequence[int]) -> dict[str, Any]:
    shas = b"".join(corpus.chunk(number).sha for number in range(corpus.num_chunks))
    return {
        "files": [{"name": p.name, "bytes": size} for p, size in zip(corpus.files, bytes_now, strict=True)],
        "lines": corpus.num_lines,
        "chunks": corpus.num_chunks,
        "sha256": hashlib.sha256(shas).hexdigest(),
    }


def _must_agree(tree: Mapping[str, Any], given: Mapping[str, Any], root: Path) -> None:
    for name in _DECIDING:
        for place, now, before in _differences(given[name], tree[name], name):
            raise UserError(
                f"{place}: {json.dumps(now, ensure_ascii=False)}, and {str(root)!r} was begun with "
                f"{json.dumps(before, ensure_ascii=False)}; give what it was begun with, or another -o"
            )


def _differences(now: Any, before: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Where two JSON values differ."""
    if isinstance(now, dict) and isinstance(before, dict):
        for key in (*now, *(before.keys() - now.keys())):
            yield from _differences(now.get(key), before.get(key), f"{place}.{key}")
    elif isinstance(now, list | tuple) and isinstance(before, list) and len(now) == len(before):
        for number, (one, other) in enumerate(zip(now, before, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif now != before:
        yield place, now, before


def _same_files(tree: Mapping[str, Any], files: Sequence[Path], bytes_now: Sequence[int]) -> None:
    """Refuse files of other sizes; what is in them, the hashes of the chunks tell as they are read."""
    known = tree["input"]["files"]
    if len(known) != len(files):
        raise UserError(
            f"--input: {len(files)} files, and the translation was begun with {len(known)}; give the same files, or "
            "another -o"
        )
    for path, size, before in zip(files, bytes_now, known, strict=True):
        if size != before["bytes"]:
            raise UserError(
                f"--input: {path} has {size:,} bytes, and had {before['bytes']:,} when the translation was begun "
                f"({before['name']}); give the same text, or another -o"
            )
