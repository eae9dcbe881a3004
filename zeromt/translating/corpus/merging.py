"""The parts' chunks as one file, in the order of the input, after each line was compared with its source."""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import zstandard

from configs import UserError
from configs.components.translation_engine import Candidate
from configs.process.files import disk_errors, inside
from configs.process.progress import Progress, say
from configs.process.streams import note
from data_pipeline.preparation.raw.compression import COMPRESSED
from data_pipeline.preparation.raw.lines import MERGED, LineReader, packing_of, side_file, summary_file
from data_pipeline.preparation.raw.monolingual import DatasetReader, reader_of
from data_pipeline.preparation.raw.translations import hash_of
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import Job, differences
from zeromt.translating.corpus.ranking import Ranking
from zeromt.translating.corpus.records import ChunkFile, Record
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
        if record.hole is not None:
            self.holes[record.hole] += 1
            self.first_hole = self.first_hole or record.line
        elif not record.candidates:
            self.blank += 1


class Outputs:
    """The files that a merge writes.

    Args:
        to: of the translations; `.zst` is compressed.
    """

    def __init__(self, to: Path) -> None:
        self.translations = to
        stem = to.name.removesuffix(".zst").removesuffix(".txt")
        self.summary = summary_file(to)
        """What identifies the translations, written last."""
        self.side = side_file(to)
        """A head for each chunk, and for each line of the output its source's number and hash, or why it is a hole."""
        self.sources = to.with_name(to.name.replace(stem, f"{stem}.source", 1))
        """Beside several translations of a line: its source, as often."""


def merge(job: Job, *, to: Path | None, choose: Choose, ranking: Ranking | None = None) -> None:
    """Write the translations of all chunks, and what is known of each line beside them.

    Args:
        job: the folder.
        to: the file to write; by default `translations.txt` in the folder, compressed as the input is.
        choose: candidates of each line.
        ranking: orders them otherwise than the engine did.

    Raises:
        UserError: a chunk is missing, or does not belong here: the message names the line.
    """
    default = f"{MERGED}{'.zst' if packing_of(job.corpus.files[0]) else ''}"
    outputs = Outputs(job.root / default if to is None else to)
    must_be_complete(job)
    counts, whole = _Counts(), hashlib.sha256()
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk_errors("-o", outputs.translations.parent))
        outputs.summary.unlink(missing_ok=True)  # of an earlier merge, whose lines are about to go
        lines = stack.enter_context(writing(outputs.translations))
        side = stack.enter_context(writing(outputs.side))
        sources = None if choose == "best" else stack.enter_context(writing(outputs.sources))
        bar = stack.enter_context(Progress("merging", job.corpus.num_lines, unit="lines"))
        for chunk, texts, content in checked(job):
            write(side, json.dumps(dict(content.head), ensure_ascii=False))
            counts.builds.add(json.dumps(content.head.get("build"), sort_keys=True))
            for (record, scores), text in zip(_ordered(job, chunk, content, ranking), texts, strict=True):
                counts.add(record)
                for rank, candidate in enumerate(chosen(record.candidates, choose) or [Candidate(text="")]):
                    own = {ranking.name: scores[rank]} if ranking is not None and scores else {}
                    whole.update(write(lines, candidate.text))
                    whole.update(record.source.encode())
                    write(side, json.dumps({**record.tree(with_texts=False), **own}))
                    if sources is not None:
                        write(sources, text)
            bar.advance(chunk.lines)
    summary = {"sha256": whole.hexdigest(), "lines": counts.lines, "holes": counts.holes.total()}
    with disk_errors("-o", outputs.summary.parent):
        inside.write_text(outputs.summary, json.dumps(summary))
    _tell(counts, outputs)


def _ordered(
    job: Job, chunk: Chunk, content: ChunkFile, ranking: Ranking | None
) -> Iterator[tuple[Record, list[float]]]:
    if ranking is None:
        return ((record, []) for record in content.records)
    return ranking.ordered(job, chunk.number, content)


def chosen(candidates: list[Candidate], choose: Choose) -> list[Candidate]:
    """Some candidates, best first."""
    return candidates if choose == "all" else candidates[: 1 if choose == "best" else choose]


def checked(job: Job) -> Iterator[tuple[Chunk, list[str], ChunkFile]]:
    """The chunks in order, each compared with the input, which is read from its beginning to its end.

    Raises:
        UserError: one is not of this input, engine or place.
    """
    readers: dict[int, LineReader | DatasetReader] = {}
    for number in range(job.corpus.num_chunks):
        chunk = job.corpus.chunk(number)
        if chunk.file not in readers:
            _must_have_ended(job, readers)
            readers = {chunk.file: reader_of(job.corpus.files[chunk.file])}
        texts = job.corpus.decoded(chunk, readers[chunk.file].take(chunk.lines))
        content = records.read(job.path(number))
        _check_head(job, chunk, content)
        _check_lines(job, chunk, texts, content)
        yield chunk, texts, content
    _must_have_ended(job, readers)


def _check_head(job: Job, chunk: Chunk, content: ChunkFile) -> None:
    """Refuse a chunk of another place, input or engine."""
    head, path = content.head, job.path(chunk.number)
    if head.get("chunk") != chunk.number:
        raise UserError(
            f"-o: line {chunk.first}: {str(path)!r} holds the lines from {head.get('first')} on, of chunk "
            f"{head.get('chunk')}: it was renamed, or copied twice; remove it and translate that chunk again"
        )
    if head.get("identity") != job.identity:
        places = [place for place, *_ in differences(head.get("engine"), job.tree["engine"], "engine")]
        raise UserError(
            f"-o: line {chunk.first}: {str(path)!r} was made with another {places[0] if places else 'input'} than "
            f"{str(job.root)!r} was begun with; remove it and translate that chunk again"
        )
    if head.get("lines") != len(content.records) or len(content.records) != chunk.lines:
        raise UserError(
            f"-o: line {chunk.first + min(len(content.records), chunk.lines)}: {str(path)!r} has "
            f"{len(content.records)} lines for {chunk.lines} of the input; remove it and translate that chunk again"
        )


def _check_lines(job: Job, chunk: Chunk, texts: list[str], content: ChunkFile) -> None:
    """Refuse a chunk whose lines are not those of the input."""
    for row, record in enumerate(content.records):
        number, path = chunk.first + row, job.path(chunk.number)
        if record.line != number:
            raise UserError(
                f"-o: line {number}: {str(path)!r} has line {record.line} in its place; remove it and translate that "
                "chunk again"
            )
        if row >= len(texts):
            raise UserError(
                f"--input: {job.corpus.files[chunk.file]}: ends before line {job.corpus.of_file(chunk, row)}, which it "
                "had when it was translated; give the same text, or another -o"
            )
        if record.source != hash_of(texts[row]):
            raise UserError(
                f"--input: {job.corpus.files[chunk.file]}: line {job.corpus.of_file(chunk, row)} is not the one whose "
                f"translation is line {number} of {str(path)!r}; give the text that was translated, or remove that "
                "file and translate its chunk again"
            )


def _must_have_ended(job: Job, readers: Mapping[int, LineReader | DatasetReader]) -> None:
    for file, reader in readers.items():
        if reader.take(1):
            raise UserError(
                f"--input: {job.corpus.files[file]}: line {reader.num_lines} was not there when the translation was "
                "begun; give the same text, or another -o"
            )


def must_be_complete(job: Job) -> None:
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
def writing(path: Path) -> Iterator[IO[bytes]]:
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


def write(file: IO[bytes], line: str) -> bytes:
    """Write a line; returns its bytes."""
    content = f"{line}\n".encode()
    file.write(content)
    return content


def _tell(counts: _Counts, outputs: Outputs) -> None:
    said = [f"{outputs.translations}: {counts.lines:,} lines of the input"]
    if counts.blank:
        said.append(f"{counts.blank:,} of them blank")
    if counts.holes:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in counts.holes.most_common(3))
        said.append(f"{counts.holes.total():,} without a translation, first line {counts.first_hole} ({reasons})")
    say(", ".join(said))
    if len(counts.builds) > 1:
        note(
            f"the parts were made by {len(counts.builds)} versions or kinds of processors, whose translations may "
            f"differ in a few pieces: {outputs.side} says which"
        )
