"""The parts' chunks as parallel files of sources, translations and scores, in the order of the input."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import zstandard

from configs import UserError
from configs.process.files import disk_errors, inside
from configs.process.progress import Progress, say
from configs.process.streams import note
from data_pipeline.preparation.raw.compression import COMPRESSED
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import Job
from zeromt.translating.corpus.records import Record
from zeromt.translating.corpus.source import Chunk

Choose = int | Literal["best", "all"]
"""Which candidates of a line become lines of the output, best first: one, all, or so many."""


@dataclass(slots=True)
class _Counts:
    lines: int = 0
    blank: int = 0
    holes: Counter[str] = field(default_factory=Counter)
    """By reason."""
    first_hole: int = 0
    """The number of its line; 0 for none."""
    builds: set[str] = field(default_factory=set)

    def add(self, record: Record) -> None:
        self.lines += 1
        if isinstance(record, str):
            self.holes[record] += 1
            self.first_hole = self.first_hole or self.lines
        elif not record:
            self.blank += 1


def merge(job: Job, *, to: Path | None, choose: Choose) -> None:
    """Write the translations of all chunks, and beside them as many lines of sources and of scores.

    A line without a translation is there with a blank one, and without a score.

    Args:
        job: the folder.
        to: the file of translations; by default `translations.txt` in the folder.
        choose: candidates of each line.

    Raises:
        UserError: a chunk is missing, or does not belong here: the message names the line.
    """
    to = to or job.root / "translations.txt"
    _must_be_complete(job)
    counts, most = _Counts(), 1 if choose == "best" else None if choose == "all" else choose
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_errors("-o", to.parent))
        files = [stack.enter_context(_writing(path)) for path in (to, *beside(to))]
        bar = stack.enter_context(Progress("merging", job.corpus.num_lines, unit="lines"))
        for chunk, texts in job.corpus.read(iter(range(job.corpus.num_chunks))):
            head, lines = records.read(job.path(chunk.number))
            _check(job, chunk, head, len(lines))
            counts.builds.add(json.dumps(head.get("build"), sort_keys=True))
            for text, record in zip(texts, lines, strict=True):
                counts.add(record)
                kept: list[tuple[str, float | str]] = [] if isinstance(record, str) else [*record[:most]]
                for found, score in kept or [("", "")]:
                    for file, line in zip(files, (found, text, score), strict=True):
                        file.write(f"{line}\n".encode())
            bar.advance(chunk.lines)
        to.unlink(missing_ok=True)  # of an earlier merge; it comes last, when the others are beside it
    _tell(counts, to)


def beside(to: Path) -> list[Path]:
    """The files of sources and of scores."""
    stem = to.name.removesuffix(".zst").removesuffix(".txt")
    return [to.with_name(to.name.replace(stem, f"{stem}.{side}", 1)) for side in ("source", "scores")]


def _check(job: Job, chunk: Chunk, head: dict[str, object], lines: int) -> None:
    """Refuse a chunk of another place, input or engine."""
    path = str(job.path(chunk.number))
    if head.get("chunk") != chunk.number:
        wrong = f"is of chunk {head.get('chunk')}: it was renamed, or copied twice"
    elif head.get("identity") != job.identity:
        wrong = f"was made with another input or engine than {str(job.root)!r} was begun with"
    elif lines != chunk.lines:
        wrong = f"has {lines} lines for {chunk.lines} of the input"
    else:
        return
    raise UserError(f"-o: line {chunk.first}: {path!r} {wrong}; remove it and translate that chunk again")


def _must_be_complete(job: Job) -> None:
    """Raise `UserError` where a chunk is missing."""
    missing = [number for number in range(job.corpus.num_chunks) if not job.path(number).exists()]
    if missing:
        first = job.corpus.chunk(missing[0])
        raise UserError(
            f"-o: {str(job.root)!r}: {len(missing)} of {job.corpus.num_chunks} chunks are missing, first lines "
            f"{first.first} to {first.last}; run the parts that are not ready, or `--part 1/1`, which makes what is "
            "missing"
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[IO[bytes]]:
    """A file of lines that appears as a whole; `.zst` is compressed."""
    if path.suffix in COMPRESSED - {".zst"}:
        raise UserError(f"--to: {str(path)!r}; allowed is a plain name, or one that ends in .zst")
    with inside.replacing(path, sync=True) as file:
        if path.suffix != ".zst":
            yield file
            return
        packer = zstandard.ZstdCompressor(level=6, write_checksum=True)
        with packer.stream_writer(file, closefd=False) as packed:
            yield packed


def _tell(counts: _Counts, to: Path) -> None:
    said = [f"{to}: {counts.lines:,} lines of the input"]
    if counts.blank:
        said.append(f"{counts.blank:,} of them blank")
    if counts.holes:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.holes.most_common())
        said.append(f"{counts.holes.total():,} without a translation, first line {counts.first_hole} ({reasons})")
    say(", ".join(said))
    if len(counts.builds) > 1:
        note(
            f"the parts were made by {len(counts.builds)} versions or kinds of processors, whose translations may "
            "differ in a few pieces"
        )
