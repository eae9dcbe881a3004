"""What is known of each step, beside the results: `.pipeline/STEP.json`, written when it begins and when it ends.

```text
.pipeline/STEP.json   what it was made of, when, by which command, and the digests of its results
.pipeline/graph.json         the graph, as the last driver knew it
.pipeline/STEP.yaml   its settings;  STEP.log  what it printed;  STEP.lock  held while it runs
.pipeline/old/        results that were made of something else
```
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.files import disk_errors, inside
from configs.process.text import digest

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
    attempt: str = ""
    """Names the last try, so that its jobs are found again."""

    @property
    def key(self) -> str:
        """The hash of what it is made of."""
        return key_of(self.material)

    @property
    def is_done(self) -> bool:
        """Whether it has succeeded."""
        return self.code == 0


def job_name(name: str, record: Record) -> str:
    """The name of the jobs of a step's last try, which schedulers take."""
    return f"{name[:100]}.{record.attempt}"


def key_of(material: Mapping[str, Any]) -> str:
    """The hash of what a result is made of."""
    return digest(material)


class Records:
    """The records of a pipeline."""

    def __init__(self, folder: Path) -> None:
        """Of the results in a folder."""
        self._results = folder
        self.folder = folder / RECORDS

    def read(self, name: str) -> Record | None:
        """The record of a step; None if it never began, or the record cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError, UserError):
            return Record(**inside.read_json(self.folder / f"{name}.json"))
        return None

    def write(self, name: str, record: Record) -> None:
        """Keep the record of a step."""
        with disk_errors("output", self.folder):
            text = f"{json.dumps(asdict(record), indent=1, ensure_ascii=False)}\n"
            inside.write_bytes(self.folder / f"{name}.json", text.encode(), sync=True)

    def put_aside(self, name: str, paths: Sequence[Path]) -> None:
        """Move what lies at these paths, made by a step of something else, out of its way; and its record."""
        with disk_errors("output", self.folder):
            old = self.folder / "old" / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
            for path in filter(Path.exists, (*paths, self.folder / f"{name}.json")):
                place = old / path.relative_to(self._results)
                place.parent.mkdir(parents=True, exist_ok=True)
                path.rename(place)
