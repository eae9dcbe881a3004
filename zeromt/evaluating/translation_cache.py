"""Translations on disk, so that `evaluate` and `compare` decode no set twice with the same checkpoint and search.

They are in `eval/kept/`, named by the hash of the checkpoint and a hash of everything else that they depend on.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import SearchSection
from configs.process.files import FileError
from configs.process.files.inside import read_bytes, read_json, refuse_link, write_bytes
from trainer.checkpoint.format import Checkpoint
from trainer.evaluation.sets import SetText
from trainer.inference.translation.languages import LanguageTags
from trainer.runs.layout import kept_hypotheses, run_of
from trainer.runs.parents import hash_of


@dataclass(kw_only=True, slots=True, frozen=True)
class Work:
    """Everything that a set's translations depend on, except the checkpoint."""

    sources: str
    """SHA-256 of the source lines."""
    weights: str
    """model or ema."""
    precision: str
    search: Mapping[str, Any]
    tags: tuple[int, int] | None
    """Pieces with which source and translation begin."""

    @classmethod
    def of(
        cls, text: SetText, search: SearchSection, tags: LanguageTags | None, *, weights: str, precision: str
    ) -> "Work":
        """What is to be translated, and how."""
        return cls(
            sources=_sha256("".join(f"{line}\n" for line in text.sources)),
            weights=weights,
            precision=precision,
            search=plain_search(search),
            tags=None if tags is None else (tags.source, tags.target),
        )


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypotheses:
    """The translations of a set, and where they are from."""

    lines: Sequence[str]
    file: Path | None
    """None if they could not be kept."""


def plain_search(section: SearchSection) -> dict[str, Any]:
    """The fields of a search that affect translations: the size of batches does so only by rounding."""
    return {name: value for name, value in dataclasses.asdict(section).items() if name != "batch_tokens"}


def read_kept(checkpoint: Checkpoint, work: Work) -> Hypotheses | None:
    """The translations kept for this work; None if there are none or the file is corrupt."""
    if (path := _path(checkpoint, work)) is None:
        return None
    try:
        record = read_json(_record(path))
        content = read_bytes(path)
        if record["sha256"] != hashlib.sha256(content).hexdigest() or record["work"] != _plain(work):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Hypotheses(lines=content.decode().split("\n")[:-1], file=path)


def keep(checkpoint: Checkpoint, work: Work, lines: Sequence[str], *, name: str) -> Path | None:
    """Keep translations in the run's folder; returns the file, or None if it cannot be written.

    Args:
        checkpoint: that made them.
        work: what was translated, and how.
        lines: one for each source, without line feeds.
        name: of the set.
    """
    if (path := _path(checkpoint, work)) is None:
        return None
    content = "".join(f"{line}\n" for line in lines).encode()
    record = {
        "set": name,
        "step": checkpoint.manifest["step"],
        "checkpoint": hash_of(checkpoint.folder),
        "work": _plain(work),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    try:
        for folder in (path.parents[1], path.parent):
            refuse_link(folder)
            folder.mkdir(exist_ok=True)
        for file, data in ((path, content), (_record(path), (json.dumps(record, indent=1) + "\n").encode())):
            write_bytes(file, data)
    except (OSError, FileError):
        return None
    return path


def _path(checkpoint: Checkpoint, work: Work) -> Path | None:
    folder, sha256 = run_of(checkpoint.folder), hash_of(checkpoint.folder)
    if folder is None or sha256 is None:
        return None
    digest = _sha256(json.dumps(_plain(work), sort_keys=True))
    return folder / f"{kept_hypotheses(sha256, digest)}.hyp"


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _plain(work: Work) -> dict[str, Any]:
    """The value after a round trip through JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(work), default=str))
    return plain


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
