"""What is known of each step, beside the results: `.pipeline/STEP.json`, written when it begins and when it ends.

```text
.pipeline/STEP.json   what it was made of, when, by which command, and the digests of its results
.pipeline/STEP.yaml   its settings;  STEP.log  what it printed;  STEP.lock  held while it runs
.pipeline/old/        results that were made of something else: brought back if that is asked for again
```
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.files import disk_errors, inside
from zeromt.pipeline.digests import digest
from zeromt.pipeline.recipe import Pipeline

FORM = 1


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

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.folder = pipeline.records()

    def read(self, name: str) -> Record | None:
        """The record of a step; None if it never began, or the record cannot be read."""
        return _read(self.folder / f"{name}.json")

    def write(self, name: str, record: Record) -> None:
        """Keep the record of a step."""
        with disk_errors("output", self.folder):
            text = f"{json.dumps(asdict(record), indent=1, ensure_ascii=False)}\n"
            inside.write_bytes(self.folder / f"{name}.json", text.encode(), sync=True)

    def make_place(self, name: str, key: str) -> Record | None:
        """Make place for what a step will make: results of another key are put aside, those of this key brought back.

        Returns:
            The record of results of this key, whole or begun; None if there are none.
        """
        there = self.read(name)
        if there is not None and there.key == key:
            return there
        self.put_aside(name, "unknown" if there is None else there.key)
        with disk_errors("output", self.folder):
            return self._bring_back(name, key)

    def put_aside(self, name: str, key: str) -> None:
        """Put what a step has made aside, if there is anything, under a key."""
        with disk_errors("output", self.folder):
            if (self.folder / f"{name}.json").exists() or any(path.exists() for path in self._movable(name)):
                self._move_aside(name, self._old(name, key))

    def _old(self, name: str, key: str) -> Path:
        return self.folder / "old" / f"{name}-{key[:16]}"

    def _movable(self, name: str) -> list[Path]:
        """The results of a step that lie in the pipeline's folder, in no other step's."""
        others = [self._pipeline.folder / other for other in self._pipeline.steps if other != name]
        own = dict.fromkeys([self._pipeline.folder / name, *self._pipeline.results(name).values()])
        return [
            path
            for path in own
            if self._pipeline.folder in path.parents and not any(other in (path, *path.parents) for other in others)
        ]

    def _move_aside(self, name: str, old: Path) -> None:
        if old.exists():
            shutil.rmtree(old)
        (old / "results").mkdir(parents=True)
        for path in self._movable(name):
            if path.exists():
                _move(path, old / "results" / path.relative_to(self._pipeline.folder))
        if (record := self.folder / f"{name}.json").exists():
            _move(record, old / "record.json")

    def _bring_back(self, name: str, key: str) -> Record | None:
        old = self._old(name, key)
        record = _read(old / "record.json")
        if record is None or record.key != key:
            return None
        for path in self._movable(name):
            if (there := old / "results" / path.relative_to(self._pipeline.folder)).exists():
                _move(there, path)
        _move(old / "record.json", self.folder / f"{name}.json")
        shutil.rmtree(old)
        return record

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
