"""What is known of each step, beside the results: `.pipeline/STEP.json`, written when it begins and when it ends.

```text
.pipeline/STEP.json   what it was made of, when, by which command, and the digests of its results
.pipeline/graph.json         the graph, as the last driver knew it
.pipeline/STEP.yaml   its settings;  STEP.log  what it printed;  STEP.lock  held while it runs
.pipeline/STEP.ATTEMPT.jobs, .code   on SLURM: the jobs of the last try, and the exit code that they left
.pipeline/old/        results that were made of something else: brought back if that is asked for again
```
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.files import disk_errors, inside
from configs.process.text import digest

FORM = 1
RECORDS = ".pipeline"
"""The folder of records, beside the results."""


@dataclass(kw_only=True, slots=True)
class Record:
    """What was made of what."""

    material: Mapping[str, Any]
    """All that decides the result: words and settings with references, digests of inputs by name, versions."""
    begun: float
    """Seconds since 1970."""
    words: list[str] = field(default_factory=list)
    """The command, with paths."""
    ended: float | None = None
    code: int | None = None
    """Its exit code; None while it runs, or if its driver was killed."""
    seconds: float = 0.0
    """That it ran, in all tries."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Digests of its results by name, once it has succeeded."""
    jobs: list[str] = field(default_factory=list)
    """On a cluster: those of the last try."""
    attempt: str = ""
    """Names the last try, for whoever finds its jobs again."""

    @property
    def key(self) -> str:
        """The hash of what it is made of."""
        return key_of(self.material)

    @property
    def is_done(self) -> bool:
        """Whether it has succeeded."""
        return self.code == 0


def key_of(material: Mapping[str, Any]) -> str:
    """The hash of what a result is made of."""
    return digest([FORM, material])


class Records:
    """The records of a pipeline."""

    def __init__(self, folder: Path) -> None:
        """Of the results in a folder."""
        self._results = folder
        self.folder = folder / RECORDS

    def read(self, name: str) -> Record | None:
        """The record of a step; None if it never began, or the record cannot be read."""
        return _read(self.folder / f"{name}.json")

    def write(self, name: str, record: Record) -> None:
        """Keep the record of a step."""
        with disk_errors("output", self.folder):
            text = f"{json.dumps(asdict(record), indent=1, ensure_ascii=False)}\n"
            inside.write_bytes(self.folder / f"{name}.json", text.encode(), sync=True)

    def make_place(self, name: str, key: str, paths: Sequence[Path]) -> Record | None:
        """Make place for what a step will make: results of another key are put aside, those of this key brought back.

        Args:
            name: of the step.
            key: of what it will make.
            paths: where its results lie.

        Returns:
            The record of results of this key, whole or begun; None if there are none.
        """
        there = self.read(name)
        if there is not None and there.key == key:
            return there
        self.put_aside(name, "unknown" if there is None else there.key, paths)
        with disk_errors("output", self.folder):
            return self._bring_back(name, key, paths)

    def put_aside(self, name: str, key: str, paths: Sequence[Path]) -> None:
        """Put what a step has made aside, if there is anything, under a key."""
        record, old = self.folder / f"{name}.json", self._old(name, key)
        if not record.exists() and not any(path.exists() for path in paths):
            return
        with disk_errors("output", self.folder):
            if old.exists():
                shutil.rmtree(old)
            for path in paths:
                if path.exists():
                    _move(path, self._place_in(old, path))
            if record.exists():
                _move(record, old / "record.json")

    def _bring_back(self, name: str, key: str, paths: Sequence[Path]) -> Record | None:
        old = self._old(name, key)
        record = _read(old / "record.json")
        if record is None or record.key != key:
            return None
        for path in paths:
            if (there := self._place_in(old, path)).exists():
                _move(there, path)
        _move(old / "record.json", self.folder / f"{name}.json")
        shutil.rmtree(old)
        return record

    def _old(self, name: str, key: str) -> Path:
        return self.folder / "old" / f"{name}-{key[:16]}"

    def _place_in(self, old: Path, path: Path) -> Path:
        return old / "results" / path.relative_to(self._results)

    def old(self) -> Iterator[Path]:
        """What was put aside."""
        yield from sorted(path for path in (self.folder / "old").glob("*") if path.is_dir())


def _move(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    path.rename(to)


def _read(path: Path) -> Record | None:
    with contextlib.suppress(OSError, ValueError, TypeError, UserError):
        return Record(**inside.read_json(path))
    return None
