"""What decides a step's result, what is recorded, and why it would be made again.

A step's key is of its words and settings, the content of its inputs and the keys of the steps that it needs: words
count with their references, so that a moved folder changes nothing, and where and by how many processes a step runs
does not count.

```text
.pipeline/STEP.json   its key and what it is made of, when, how it ended;  STEP.yaml  its settings
.pipeline/STEP.log    what it printed;  STEP.lock  held while it runs;  old/  what was made of something else
```
"""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from configs.errors import UserError
from configs.process.files import disk_errors, explain, inside
from configs.process.text import digest
from configs.reading.variables import as_saved
from data_pipeline.prepared.index import INDEX_FILE
from trainer.runs.layout import CHECKPOINTS, MANIFEST, list_steps, model_identity, versions
from zeromt.pipeline.recipe import Pipeline

NEVER = "never begun"
_PACKAGES = ("zeromt", "torch", "deepspeed", "sentencepiece", "sacrebleu", "ctranslate2")


@dataclass(kw_only=True, slots=True)
class Record:
    """What is known of a step that has begun."""

    key: str
    material: Mapping[str, Any]
    """All that decides the result."""
    begun: float
    """Seconds since 1970."""
    attempt: str = field(default_factory=lambda: secrets.token_hex(6))
    """Names the attempt, so that its jobs are found again; after a failure it is another."""
    code: int | None = None
    """Its exit code; None while it runs, or if its driver was killed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of packages, for people: another version does not make a result again."""

    def job(self, step: str) -> str:
        """The name of its jobs, which schedulers take."""
        return f"{step[:100]}.{self.attempt}"

    @classmethod
    def read(cls, file: Path) -> "Record | None":
        """The record of a step; None if it never began, or the record cannot be read."""
        with contextlib.suppress(OSError, ValueError, TypeError, UserError):
            return cls(**inside.read_json(file))
        return None

    def write(self, file: Path) -> None:
        """Keep it."""
        with disk_errors("output", file.parent):
            inside.write_bytes(file, f"{json.dumps(asdict(self), indent=1)}\n".encode(), sync=True)


class Decision(NamedTuple):
    """Whether a step runs, and why."""

    runs: bool
    why: str
    record: Record
    """Of a run from now on: what was begun with the same key resumes."""


def plan(pipeline: Pipeline) -> dict[str, Decision]:
    """What is to be done with each step that has a command, in order, as things are now.

    Raises:
        UserError: an input is not there, or cannot be read.
    """
    identities = {name: _identity(f"inputs.{name}", path) for name, path in pipeline.inputs.items()}
    planned: dict[str, Decision] = {}
    for name, step in pipeline.steps.items():
        if step.use is not None:
            identities[name] = _identity(f"steps.{name}.use", step.use)
            continue
        material = {
            "command": step.words,
            "config": as_saved(step.config),
            "stdout": as_saved(step.stdout),
            "inputs": {need: identities[need] for need in pipeline.needs[name]},
        }
        identities[name] = key = digest(material | {"config": step.config})
        record = Record.read(pipeline.record(name, "json"))
        why = _why(pipeline.folder / name, record, key, material)
        if record is None or record.key != key:
            record = Record(key=key, material=material, begun=0.0, versions=dict(versions(_PACKAGES)))
        planned[name] = Decision(runs=bool(why), why=why, record=record)
    return planned


def _why(result: Path, record: Record | None, key: str, material: Mapping[str, Any]) -> str:
    """Why a step runs; empty if it need not."""
    if record is None:
        return NEVER
    if record.key != key:
        changed = list(places(record.material, material)) or ["a variable"]
        return "; ".join(f"{place} has changed" for place in changed)
    if record.code != 0:
        return "was not finished" if record.code is None else f"ended with exit code {record.code}"
    return "" if result.exists() else f"{result} is not there"


def _identity(of: str, name: str) -> str:
    """Of a file, its content; of a dataset, its index; of a run, its newest model; else of all files.

    Raises:
        UserError: it cannot be read; the message names the field.
    """
    path = Path(name)
    try:
        if (path / CHECKPOINTS).is_dir():
            path = next(iter(list_steps(path / CHECKPOINTS)), path)
        if (path / MANIFEST).is_file():
            return digest(model_identity(path))
        if (path / INDEX_FILE).is_file():
            path = path / INDEX_FILE
        if path.is_dir():
            return digest([[str(file.relative_to(path)), _file(file)] for file in _files(path)])
        return _file(path)
    except OSError as error:
        raise UserError(f"{of}: {name!r}: {explain(error)}; give a file or a folder") from error


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        yield from (one for name in sorted(names) if (one := Path(root, name)).is_file())


def places(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where two trees differ; inputs by their names."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        inner = "" if place in ("", "inputs") else f"{place}."
        for key in dict.fromkeys([*now, *before]):
            yield from places(before.get(key), now.get(key), f"{inner}{key}")
    elif before != now:
        yield place
