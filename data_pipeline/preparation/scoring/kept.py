"""Scores that a command has given, kept beside the outputs: each pair is scored once for all later preparations.

A file holds the scores of a chunk of pairs, and is named after their text; its folder after what made them, the
command, its arguments and the content of the files that it depends on. All of it may be removed at any time.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from configs.process.files import inside
from data_pipeline.preparation.scoring.numbers import Scores

FOLDER = ".scores"
ABOUT_FILE = "about.json"
FORM = 1


@dataclass(frozen=True, slots=True)
class KeptScores:
    """The scores of one command."""

    folder: Path
    made_by: Mapping[str, Any]

    @classmethod
    def beside(cls, output: Path, made_by: Mapping[str, Any]) -> "KeptScores":
        """Those of what made them, beside a dataset; the folder need not exist yet."""
        digest = hashlib.sha256(json.dumps([FORM, made_by], sort_keys=True).encode()).hexdigest()
        return cls(output.absolute().parent / FOLDER / digest[:16], made_by)

    def read(self, sources: Sequence[str], targets: Sequence[str]) -> Scores | None:
        """The scores of a chunk; None if they are not there, or damaged."""
        try:
            with inside.reading(self._path(sources, targets)) as file, np.load(file, allow_pickle=False) as content:
                scores: Scores = content["scores"]  # a zip file has checksums
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return scores if scores.shape == (len(sources),) and scores.dtype == np.float32 else None

    def write(self, sources: Sequence[str], targets: Sequence[str], scores: Scores) -> None:
        """Keep the scores of a chunk."""
        path = self._path(sources, targets)
        path.parent.mkdir(parents=True, exist_ok=True)
        with inside.replacing(path, sync=True) as file:
            np.savez(file, scores=scores)

    def note(self) -> None:
        """Say in the folder what made its scores, for people."""
        self.folder.mkdir(parents=True, exist_ok=True)
        inside.write_text(self.folder / ABOUT_FILE, json.dumps(self.made_by, indent=1, ensure_ascii=False))

    def _path(self, sources: Sequence[str], targets: Sequence[str]) -> Path:
        text = "\0".join(("\n".join(sources), "\n".join(targets)))
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return self.folder / digest[:2] / f"{digest}.npz"
