"""The map step of preparation: reads, cleans and encodes a span of the corpus, and scatters it over the shards.

A span becomes one file, `span-N.npz`, in which each shard has two members: the rows of its pairs and their pieces. A
zip file has checksums. Processes import this module, so it must be light (no torch, no webdataset).
"""

import hashlib
import itertools
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.components import Corpus, Pairs
from configs.process.files.inside import opened, replacing
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.cleaning import (
    DUPLICATE,
    EMPTY,
    LENGTH_RATIO,
    TOO_LONG,
    Cleaned,
    Cleaner,
    Rows,
    filters_of,
)
from data_pipeline.preparation.corpus import RawSpan, Span, Unit
from data_pipeline.preparation.lines import TextChunk
from data_pipeline.preparation.programs import ScoreSources
from data_pipeline.preparation.report import NUM_EXAMPLES, Example, Report
from data_pipeline.prepared.index import parsed, place_numbers
from data_pipeline.tokenizer import UNK_ID, Tokenizer

CHUNK_LINES = 4096

Pieces = NDArray[np.unsignedinteger]
HeldOutPairs = Sequence[tuple[str, str]]


class Encoded(NamedTuple):
    """Encoded pairs."""

    rows: NDArray[np.void]
    """(pairs,): see `row_type`."""
    source: Pieces
    """Source pieces of all pairs, one after the other."""
    target: Pieces

    def starts(self) -> Rows:
        """(pairs, 2): where each pair's pieces begin."""
        lengths: Rows = self.rows["lengths"].astype(np.int64)
        return np.cumsum(lengths, axis=0) - lengths

    def take(self, chosen: Rows, starts: Rows) -> "Encoded":
        """Some of the pairs, in the order of `chosen`, given `starts`."""
        rows, firsts = self.rows[chosen], starts[chosen]
        lengths = rows["lengths"]
        source = _take(self.source, firsts[:, 0], lengths[:, 0])
        return Encoded(rows, source, _take(self.target, firsts[:, 1], lengths[:, 1]))


def row_type(num_scores: int, *, is_hashed: bool) -> np.dtype[np.void]:
    """What is kept of a pair besides its pieces."""
    return np.dtype(
        [
            ("key", "<u8"),  # random; gives the order within a shard
            ("hash", "<u8", (2 * is_hashed,)),  # of the text
            ("place", "<u8"),  # see `place_numbers`
            ("lengths", "<u2", (2,)),  # pieces of source and target
            ("scores", "<f4", (num_scores,)),  # NaN where there is none
        ]
    )


def _take(pieces: Pieces, starts: Rows, lengths: NDArray[np.unsignedinteger]) -> Pieces:
    """The pieces that begin at `starts`, with these numbers."""
    shift = starts - np.cumsum(lengths, dtype=np.int64) + lengths
    return pieces[np.repeat(shift, lengths) + np.arange(int(lengths.sum(dtype=np.int64)))]


def first_occurrences(hashes: NDArray[np.uint64]) -> Rows:
    """The rows of (pairs, 2) hashes that no earlier row equals, ascending."""
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # a stable sort keeps equal ones in corpus order
    is_first = np.full(len(hashes), True)
    is_first[order[1:]] = (hashes[order[1:]] != hashes[order[:-1]]).any(axis=1)
    return np.flatnonzero(is_first)


class EncodeJob(NamedTuple):
    """The part of the work that a process needs to encode spans."""

    section: PrepareSection
    units: Sequence[Unit]
    tokenizer_files: dict[str, bytes]
    held_out: HeldOutPairs
    """Held-out pairs, for a filter that needs them."""
    dtype: Literal["uint16", "uint32"]
    """Of the numbers of pieces."""
    folder: Path
    """Where spans go."""
    num_shards: int
    scores: ScoreSources

    def open(self) -> Callable[[tuple[Span, RawSpan | None]], int]:
        """The function that encodes a span and returns the number of pairs read."""
        return SpanEncoder(self).encode_span

    def path(self, span: int) -> Path:
        """The file of a span."""
        return self.folder / f"span-{span:06d}.npz"

    def missing(self, spans: Iterable[Span]) -> list[Span]:
        """Those that are not encoded, as the folder is now listed: other machines write here too."""
        there = {path.name for path in self.folder.iterdir()}
        return [span for span in spans if self.path(span.number).name not in there]

    def read(self, span: int, *names: str) -> list[NDArray[Any]]:
        """Members of a span's file.

        Raises:
            UserError: the file is damaged.
        """
        path = self.path(span)
        try:
            with opened(path) as file, np.load(file, allow_pickle=False) as members:
                return [members[name] for name in names]
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                f"prepare.output: {path}: is damaged; remove it and run the same command again, or the --part that "
                "made it and --merge"
            ) from error

    def report(self, span: int) -> Report:
        """The report on a span."""
        [content] = self.read(span, "report")
        return parsed(Report, content.tobytes(), self.path(span))

    def gather(self, shard: int, num_spans: int) -> Encoded:
        """The pairs of a shard, in corpus order."""
        parts = [self.read(span, f"rows-{shard}")[0] for span in range(num_spans)]
        sizes = np.array([part["lengths"].sum(axis=0, dtype=np.int64) for part in parts])
        source, target = (np.empty(size, dtype=self.dtype) for size in sizes.sum(axis=0))
        for span, (first, second) in enumerate((np.cumsum(sizes, axis=0) - sizes).tolist()):
            [pieces] = self.read(span, f"pieces-{shard}")
            end = int(sizes[span, 0])
            source[first : first + end] = pieces[:end]
            target[second : second + len(pieces) - end] = pieces[end:]
        return Encoded(np.concatenate(parts), source, target)


class SpanEncoder:
    """Encodes spans in one process."""

    def __init__(self, job: EncodeJob) -> None:
        self._job = job
        self._section = job.section
        self._tokenizer = Tokenizer(job.tokenizer_files)
        self._cleaner = make_cleaner(job.section, job.held_out)
        self._drops_duplicates = job.section.cleaning.duplicates == "drop"

    def encode_span(self, task: tuple[Span, RawSpan | None]) -> int:
        """Encode a span and write it. The text of a span that is not seekable is passed in.

        Raises:
            UserError: it is not valid text.
        """
        span, raw = task
        raw = raw if raw is not None else self._job.units[span.unit].read(span)
        keys = random_bits(span.pairs, self._section.seed, Purpose.SHUFFLE, span.number)
        report = Report(left_out=dict(span.left_out))
        parts = []
        for text in raw.chunks(CHUNK_LINES):
            first = text.first_line - span.first_line
            part, of_part = self._encode_chunk(text, span.unit, keys[first : first + len(text.sources)])
            parts.append(part)
            report = report.merge(of_part)
        pairs = Encoded(*map(np.concatenate, zip(*parts, strict=True)))
        by = pairs.rows["key"]
        if self._drops_duplicates:
            first_ones = first_occurrences(pairs.rows["hash"])
            report = report.merge(Report(dropped={DUPLICATE: len(pairs.rows) - len(first_ones)}))
            pairs = pairs.take(first_ones, pairs.starts())
            by = pairs.rows["hash"][:, 0]  # so that duplicates from different spans meet in one shard
        shards = (by >> np.uint64(32)) * np.uint64(self._job.num_shards) >> np.uint64(32)
        members: dict[str, Any] = {"report": np.frombuffer(report.to_json(), dtype=np.uint8)}
        starts = pairs.starts()
        for shard in range(self._job.num_shards):
            part = pairs.take(np.flatnonzero(shards == shard), starts)
            members[f"rows-{shard}"] = part.rows
            members[f"pieces-{shard}"] = np.concatenate([part.source, part.target])
        with replacing(self._job.path(span.number), sync=True) as file:
            np.savez(file, **members)
        return span.pairs

    def _encode_chunk(self, text: TextChunk, unit: int, keys: NDArray[np.uint64]) -> tuple[Encoded, Report]:
        """Clean and encode a chunk."""
        scores = self._job.scores.of(text, unit)
        known = Pairs(sources=text.sources, targets=text.targets, where=text.where, scores=scores)
        cleaned = self._cleaner.clean(text.sources, text.targets, known)
        source_ids, target_ids = self._encode_sides(cleaned.sources, cleaned.targets)
        lengths = np.array([[len(ids) for ids in side] for side in (source_ids, target_ids)], dtype=np.int64).T
        dropped, kept = self._by_pieces(cleaned, lengths - self._num_tags(source_ids))
        chosen, numbers = cleaned.rows[kept], kept.tolist()
        rows = np.zeros(len(kept), dtype=row_type(len(scores), is_hashed=self._drops_duplicates))
        rows["key"] = keys[chosen]
        rows["place"] = place_numbers(unit, text.first_line + chosen)
        rows["lengths"] = lengths[kept]
        for column, one in enumerate(scores.values()):
            rows["scores"][:, column] = one[chosen]
        sources, targets = [cleaned.sources[row] for row in numbers], [cleaned.targets[row] for row in numbers]
        if self._drops_duplicates:
            rows["hash"] = _hashes(sources, targets)
        encoded = Encoded(rows, self._pieces(source_ids, numbers), self._pieces(target_ids, numbers))
        report = Report(
            read=len(text.sources),
            dropped={name: len(bad) for name, bad in dropped.items()},
            changed=cleaned.changed,
            examples={name: [Example.of(text, row) for row in bad[:NUM_EXAMPLES]] for name, bad in dropped.items()},
            pieces={"source": len(encoded.source), "target": len(encoded.target)},
            unknown={
                "source": int(np.count_nonzero(encoded.source == UNK_ID)),
                "target": int(np.count_nonzero(encoded.target == UNK_ID)),
            },
        )
        return encoded, report

    def _pieces(self, ids: list[list[int]], kept: list[int]) -> Pieces:
        """The pieces of the rows that are kept, one after the other."""
        return np.fromiter(itertools.chain.from_iterable([ids[row] for row in kept]), dtype=self._job.dtype)

    def _encode_sides(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[list[list[int]], list[list[int]]]:
        """The pieces of either side, with the section's tags."""
        section = self._section
        tag = self._tokenizer.tags_of(section.source_language)[0] if section.tag_both_sides else section.target_tag
        source_ids = self._tokenizer.encode_source([f"{tag} {s}" for s in sources] if tag else sources)
        target_ids = self._tokenizer.encode_target(targets)
        if section.tag_both_sides:
            first = self._tokenizer.tag_id(self._tokenizer.tags_of(section.target_language)[0])
            target_ids = [[first, *ids] for ids in target_ids]
        return source_ids, target_ids

    def _num_tags(self, source_ids: list[list[int]]) -> Rows:
        """(pairs, 2): number of pieces on either side that are language tags."""
        tags = np.zeros((len(source_ids), 2), dtype=np.int64)
        if self._tokenizer.tags:
            tags[:, 0] = [len(ids) - self._tokenizer.num_text_pieces(ids) for ids in source_ids]
        tags[:, 1] = int(self._section.tag_both_sides)
        return tags

    def _by_pieces(self, cleaned: Cleaned, lengths: Rows) -> tuple[dict[str, Rows], Rows]:
        """By filter in order the rows of the chunk that are dropped, by text or pieces; and the cleaned rows to keep.

        Tags do not count as pieces.
        """
        longest, shortest = lengths.max(axis=1, initial=0), lengths.min(axis=1, initial=1 << 30)
        too_bad = {EMPTY: shortest == 0, TOO_LONG: longest > self._section.max_pieces}
        if (ratio := self._section.cleaning.max_length_ratio) is not None:
            too_bad[LENGTH_RATIO] = longest > shortest * ratio
        dropped = {name: cleaned.dropped.get(name, cleaned.rows[:0]) for name in cleaned.names}
        left = np.full(len(lengths), True)
        for name, is_bad in too_bad.items():
            before = dropped.get(name, cleaned.rows[:0])  # normalisation by the tokenizer may leave nothing of a text
            dropped[name] = np.sort(np.concatenate([before, cleaned.rows[is_bad & left]]))
            left &= ~is_bad
        return dropped, np.flatnonzero(left)


def make_cleaner(section: PrepareSection, held_out: HeldOutPairs) -> Cleaner:
    """Make the filters of text.

    Args:
        section: configures them.
        held_out: the pairs of the validation and test sets, if a filter needs them.

    Raises:
        UserError: a setting cannot be used, as a package is missing or a script or language is unknown.
    """
    source, target = section.languages
    corpus = Corpus(source_language=source, target_language=target, held_out=held_out)
    return Cleaner(filters_of(section), corpus)


def _hashes(sources: list[str], targets: list[str]) -> NDArray[np.uint64]:
    """(pairs, 2): BLAKE2b of each pair's text."""
    digests = [
        hashlib.blake2b(f"{source}\0{target}".encode(), digest_size=16).digest()
        for source, target in zip(sources, targets, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
