"""Another order of a line's candidates than the engine's: by minimum Bayes risk, or by a command such as a QE model.

Scores are kept beside the chunks, `scores/NAME/000/000123.json.zst`: choosing again scores and decodes nothing.
"""

import dataclasses
import json
import math
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

from configs import UserError
from configs.process.files import disk_errors, inside
from configs.process.progress import Progress
from configs.process.text import digest
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import Job, Part
from zeromt.translating.corpus.records import FORM, ChunkFile, Record
from zeromt.translating.mbr import Utility, expected_utilities

_FOLDER = "scores"
_CORRUPT = (zstandard.ZstdError, ValueError, KeyError, TypeError)
"""What reading a file of scores raises."""


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Ranking:
    """What orders candidates: the expected utility, or the numbers of a command; the higher the better."""

    mbr: Utility | None = None
    command: str | None = None
    """It reads lines `SOURCE TAB CANDIDATE`, of all lines of a chunk, and writes a number for each."""

    @property
    def name(self) -> str:
        """For files, and in the side file."""
        return f"mbr-{self.mbr}" if self.mbr else f"quality-{digest(self.command)[:8]}"

    def score(self, job: Job, numbers: range) -> None:
        """Score the candidates of chunks that have no scores yet.

        Raises:
            UserError: the command fails, or the disk is full.
        """
        missing = [number for number in numbers if not self._path(job, number).exists()]
        total = job.corpus.lines_of(numbers)
        done = total - sum(job.corpus.chunk(number).lines for number in missing)
        with Progress(f"scoring by {self.name}", total, done, unit="lines") as progress:
            for chunk, lines in job.corpus.read(iter(missing)):
                content = records.read(job.path(chunk.number))
                scores = list(self._scores(lines, content.records))
                tree = {"form": FORM, "chunk": digest_of(content), "scores": scores}
                packed = zstandard.ZstdCompressor(write_checksum=True).compress(json.dumps(tree).encode())
                path = self._path(job, chunk.number)
                with disk_errors("-o", job.root):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    inside.write_bytes(path, packed, sync=True)
                progress.advance(chunk.lines)

    def ordered(self, job: Job, number: int, content: ChunkFile) -> Iterator[tuple[Record, list[float]]]:
        """The records of a chunk with their candidates in this order, and the scores of these.

        Raises:
            UserError: there are no scores, or they are of other candidates.
        """
        path, first = self._path(job, number), job.corpus.chunk(number).first
        again = f"run the parts with {'--mbr ' + self.mbr if self.mbr else '--quality'}, which decode nothing again"
        try:
            tree = _read(path)
            if tree["form"] != FORM or tree["chunk"] != digest_of(content):
                raise UserError(f"-o: line {first}: {str(path)!r} is of other candidates; remove it and {again}")
            scores = [list(map(float, one)) for one in tree["scores"]]
        except FileNotFoundError as error:
            raise UserError(f"-o: line {first}: its candidates have no scores ({str(path)!r}); {again}") from error
        except _CORRUPT as error:
            raise UserError(f"-o: line {first}: {str(path)!r} is corrupt; remove it and {again}") from error
        for record, values in zip(content.records, scores, strict=True):
            order = by_score(record, values)
            candidates = [record.candidates[i] for i in order]
            yield dataclasses.replace(record, candidates=candidates), [values[i] for i in order]

    def _path(self, job: Job, number: int) -> Path:
        chunk = job.path(number)
        return job.root / _FOLDER / self.name / chunk.parent.name / _beside(chunk)

    def _scores(self, lines: Sequence[str], found: Sequence[Record]) -> Iterator[list[float]]:
        if self.mbr is not None:
            for record in found:
                texts = [one.text for one in record.candidates]
                yield expected_utilities(texts, self.mbr) if texts else []
            return
        pairs = [(line, one.text) for line, record in zip(lines, found, strict=True) for one in record.candidates]
        numbers = iter(_by_command(str(self.command), pairs))
        for record in found:
            yield [next(numbers) for _ in record.candidates]


def by_score(record: Record, scores: Sequence[float]) -> list[int]:
    """The numbers of a line's candidates, the highest score first; of equal ones that of higher log-probability."""
    log_probs = [-math.inf if one.log_prob is None else one.log_prob for one in record.candidates]
    return sorted(range(len(scores)), key=lambda i: (-scores[i], -log_probs[i], i))


def _read(path: Path) -> Any:
    return inside.parse_json(
        zstandard.ZstdDecompressor().decompressobj().decompress(inside.read_bytes(path, most=None))
    )


def _beside(chunk: Path) -> str:
    """The name of a chunk's file of scores."""
    return chunk.name.replace(".jsonl.", ".json.")


def score_part(job: Job, part: Part, ranking: Ranking) -> None:
    """Score the candidates of a part's chunks, which are all there."""
    ranking.score(job, part.chunks(job.corpus.num_chunks))


def digest_of(content: ChunkFile) -> str:
    """The hash of a chunk's candidates."""
    return digest([record.tree() for record in content.records])


def _by_command(command: str, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """The numbers that a command writes for pairs of a source and a candidate."""
    text = "".join(f"{' '.join(a.split())}\t{' '.join(b.split())}\n" for a, b in pairs)
    try:
        done = subprocess.run(shlex.split(command), input=text.encode(), stdout=subprocess.PIPE, check=False)
    except (OSError, ValueError) as error:
        raise UserError(f"--quality: {command!r} cannot be started: {error}") from error
    if done.returncode:
        raise UserError(f"--quality: {command!r} ended with exit code {done.returncode}; see what it printed")
    try:
        numbers = [float(line) for line in done.stdout.decode().split()]
        if len(numbers) != len(pairs) or not all(map(math.isfinite, numbers)):
            raise ValueError
    except ValueError as error:
        wrote = len(done.stdout.split())
        raise UserError(
            f"--quality: {command!r} wrote {wrote} words for {len(pairs)} lines; allowed is a finite number for each"
        ) from error
    return numbers
