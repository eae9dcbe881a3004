"""The folder in which a dataset is scored, and its chunks: `DATASET.scoring/NAME/000123.npy`.

A chunk is some blocks of the dataset, so that it does not depend on the number of parts. What is there is the progress.
"""

import itertools
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.process.files import disk_errors, inside
from data_pipeline.prepared.dataset import Dataset

CHUNK_PAIRS = 4096
"""Pairs of a chunk, at least; a dataset's last has fewer."""
_JOB = "job.json"


@dataclass(frozen=True)
class Judging:
    """A dataset that is being scored."""

    dataset: Dataset
    identity: Mapping[str, Any]
    """What the scores are made of: the dataset, and what decides a model's numbers by score."""

    @property
    def root(self) -> Path:
        """What the chunks lie in."""
        return self.dataset.folder.with_name(f"{self.dataset.folder.name}.scoring")

    @cached_property
    def chunks(self) -> list[range]:
        """The blocks of each chunk."""
        ends = np.cumsum(self.dataset.blocks["pairs"], dtype=np.int64)
        cuts, first = [0], 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            first = min(int(np.searchsorted(ends, before + CHUNK_PAIRS)) + 1, len(ends))
            cuts.append(first)
        return [range(one, two) for one, two in itertools.pairwise(cuts)]

    def begin(self) -> None:
        """Note what the scores are made of, or compare it with what is noted.

        Raises:
            UserError: they were begun with something else.
        """
        with disk_errors("DATASET", self.root):
            self.root.mkdir(exist_ok=True)
            if not inside.is_listed(self.root / _JOB):
                inside.write_text(self.root / _JOB, json.dumps(self.identity, indent=1))
        if (noted := inside.read_json(self.root / _JOB)) != self.identity:
            others = [key for key in self.identity if noted.get(key) != self.identity[key]]
            raise UserError(
                f"DATASET: {str(self.root)!r} was begun with another {' and '.join(others)}; give what it was begun "
                "with, or remove that folder"
            )

    def path(self, name: str, chunk: int) -> Path:
        """The file of a chunk's scores."""
        return self.root / name / f"{chunk:06d}.npy"

    def missing(self, name: str, numbers: range) -> list[int]:
        """Those of some chunks that have no score of this name yet."""
        return [number for number in numbers if not inside.is_listed(self.path(name, number))]

    def num_pairs(self, numbers: Sequence[int]) -> int:
        """Pairs of some chunks."""
        pairs = self.dataset.blocks["pairs"]
        return sum(int(pairs[self.chunks[n].start : self.chunks[n].stop].sum()) for n in numbers)

    def texts(self, number: int) -> tuple[list[str], list[str]]:
        """Sources and targets of a chunk, as the tokenizer spells them; sources with their tag, if they have one."""
        tokenizer, tags = self.dataset.tokenizer, int(self.dataset.tag_both_sides)
        sources: list[str] = []
        targets: list[str] = []
        for block in map(self.dataset.read_block, self.chunks[number]):
            ends = np.cumsum(block.lengths, axis=0, dtype=np.int64)[:-1]
            rows = [np.split(side, ends[:, at]) for at, side in enumerate((block.source, block.target))]
            sources += tokenizer.decode_source([row[tags:].tolist() for row in rows[0]])
            targets += tokenizer.decode_target([row.tolist() for row in rows[1]])  # which leaves tags out
        return sources, targets

    def write(self, name: str, number: int, scores: Sequence[float]) -> None:
        """Write a chunk's scores: all of them, or none."""
        path = self.path(name, number)
        with disk_errors("DATASET", self.root):
            path.parent.mkdir(exist_ok=True)
            with inside.replacing(path, sync=True) as file:
                np.save(file, np.asarray(scores, dtype=np.float32))

    def must_be_complete(self, names: Iterable[str]) -> None:
        """Raise unless all chunks have these scores.

        Raises:
            UserError: naming the first that has not.
        """
        for name in names:
            if missing := self.missing(name, range(len(self.chunks))):
                raise UserError(
                    f"--merge: {len(missing)} of {len(self.chunks)} chunks have no {name} yet (the first is number "
                    f"{missing[0]}); run the missing --part, or without --merge"
                )

    def read(self, name: str, number: int) -> NDArray[np.float32]:
        """(pairs,): the scores of a chunk.

        Raises:
            UserError: they are damaged.
        """
        path = self.path(name, number)
        try:
            with inside.opened(path) as file:
                found: NDArray[np.float32] = np.load(file, allow_pickle=False)
            if found.shape != (self.num_pairs([number]),):
                raise ValueError
        except (ValueError, EOFError) as error:
            raise UserError(f"--merge: {str(path)!r} is damaged; remove it and score again") from error
        return found

    def remove(self) -> None:
        """Remove the chunks, when their scores are with the dataset."""
        shutil.rmtree(self.root)
