"""Translations on disk, so that `evaluate` and `compare` decode no set twice with the same checkpoint and search.

They are in `eval/kept/`, named by the hash of the checkpoint and a hash of everything else that they depend on.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import SearchSection
from configs.process.files import FileError
from configs.process.files.inside import read_text, refuse_link, write_text
from trainer.checkpoint.format import Checkpoint
from trainer.evaluation.sets import SetText
from trainer.inference.translation.languages import LanguageTags
from trainer.runs.layout import kept_hypotheses, run_of
from trainer.runs.parents import hash_of


@dataclass(kw_only=True, slots=True, frozen=True)
class Work:
    """Everything that a set's translations depend on, except the checkpoint."""

    text: SetText
    search: SearchSection
    tags: LanguageTags | None
    """Pieces with which source and translation begin."""
    weights: str
    """model or ema."""
    precision: str

    def path(self, checkpoint: Checkpoint) -> Path | None:
        """The file of the translations; None for a checkpoint that is in no run's folder."""
        folder, sha256 = run_of(checkpoint.folder), hash_of(checkpoint.folder)
        if folder is None or sha256 is None:
            return None
        search = dataclasses.asdict(self.search)
        del search["batch_tokens"]  # it affects translations only by rounding
        tags = None if self.tags is None else (self.tags.source, self.tags.target)
        parts = [list(self.text.sources), self.weights, self.precision, search, tags]
        digest = hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()
        return folder / f"{kept_hypotheses(sha256, digest)}.hyp"


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypotheses:
    """The translations of a set, and where they are from."""

    lines: Sequence[str]
    file: Path | None
    """None if they could not be kept."""


def read_kept(checkpoint: Checkpoint, work: Work) -> Hypotheses | None:
    """The translations kept for this work; None if there are none or the file is corrupt."""
    if (path := work.path(checkpoint)) is None:
        return None
    try:
        lines = read_text(path, most=None).split("\n")[:-1]
    except (OSError, ValueError):
        return None
    return Hypotheses(lines=lines, file=path) if len(lines) == len(work.text.sources) else None


def keep(checkpoint: Checkpoint, work: Work, lines: Sequence[str]) -> Path | None:
    """Keep translations in the run's folder; returns the file, or None if it cannot be written.

    Args:
        checkpoint: that made them.
        work: what was translated, and how.
        lines: one for each source, without line feeds.
    """
    if (path := work.path(checkpoint)) is None:
        return None
    try:
        for folder in (path.parents[1], path.parent):
            refuse_link(folder)
            folder.mkdir(exist_ok=True)
        write_text(path, "".join(f"{line}\n" for line in lines))
    except (OSError, FileError):
        return None
    return path
