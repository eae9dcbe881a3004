"""The map step of preparation: reads, cleans and encodes a span of the corpus, and scatters it over the shards.

Processes import this module, so it must be light (no torch, no webdataset).
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.components import Corpus, Pairs
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.preparation.cleaning import DUPLICATE, EMPTY, LENGTH_RATIO, TOO_LONG, Cleaner, filters_of
from data_pipeline.preparation.raw.lines import TextChunk, corpus_paths
from data_pipeline.preparation.raw.unit import RawSpan, Span, Unit
from data_pipeline.preparation.report import SIDES, PieceCount, Report
from data_pipeline.preparation.scoring.sources import ScoreSources
from data_pipeline.preparation.writing.spill import HASH_BYTES, PairRows, SpillFolder, first_occurrences, take
from data_pipeline.prepared.index import TokenType, place_numbers
from data_pipeline.tokenizer import UNK_ID, Tokenizer

CHUNK_LINES = 4096

Rows = NDArray[np.int64]
Pieces = NDArray[np.unsignedinteger]
HeldOutPairs = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeJob:
    """The part of the work that a process needs to encode spans."""

    section: PrepareSection
    units: Sequence[Unit]
    tokenizer_files: dict[str, bytes]
    held_out: HeldOutPairs
    """Held-out pairs, for a filter that needs them."""
    dtype: TokenType
    spill: Path
    num_shards: int
    scores: ScoreSources = dataclasses.field(default_factory=ScoreSources)

    def open(self) -> Callable[[tuple[Span, RawSpan | None]], int]:
        """The function that encodes a span and returns the number of pairs read."""
        return SpanEncoder(self).encode_span

    @property
    def keeps_places(self) -> bool:
        """Whether spans and shards have the places of pairs: for the dataset, or to count the pairs of each source."""
        has_sources = self.section.train.licence or self.section.train.attribution
        return self.section.record_places or bool(has_sources)

    def spill_folder(self) -> SpillFolder:
        """Where spans go."""
        return SpillFolder(
            self.spill,
            num_shards=self.num_shards,
            has_hashes=self.section.cleaning.duplicates == "drop",
            dtype=self.dtype,
            has_places=self.keeps_places,
            num_scores=len(self.scores.names),
        )


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The kept pairs of a chunk."""

    rows: Rows
    source: Pieces
    target: Pieces
    lengths: NDArray[np.uint16]
    hashes: NDArray[np.uint8]


class SpanEncoder:
    """Encodes spans in one process."""

    def __init__(self, job: EncodeJob) -> None:
        self._job = job
        self._section = job.section
        self._dtype = np.dtype(job.dtype)
        self._tokenizer = Tokenizer(job.tokenizer_files)
        self._cleaner = make_cleaner(job.section, job.held_out)
        self._spill = job.spill_folder()
        self._drops_duplicates = job.section.cleaning.duplicates == "drop"

    def encode_span(self, task: tuple[Span, RawSpan | None]) -> int:
        """Encode a span and write it to the spill folder. The text of a span that is not seekable is passed in.

        Raises:
            UserError: it is not valid text, or a pair is empty or too long and such pairs are refused.
        """
        span, raw = task
        raw = raw if raw is not None else self._job.units[span.unit].read(span)
        report = dataclasses.replace(Report.empty(), left_out=dict(span.left_out))
        chunks, scores, first = [], [], 0
        for text in raw.chunks(CHUNK_LINES):
            scores.append(self._job.scores.of(text, span.unit))
            chunk, chunk_report = self._encode_chunk(text, first, scores[-1])
            chunks.append(chunk)
            report = report.merge(chunk_report)
            first += len(text.sources)
        keys = random_bits(first, self._section.seed, Purpose.SHUFFLE, span.number)
        rows = np.concatenate([c.rows for c in chunks])
        names = self._job.scores.names
        scored = np.stack([np.concatenate([one[n] for one in scores]) for n in names], axis=1) if names else None
        pairs = PairRows(
            keys=(keys[rows] & np.uint64(0xFFFFFFFF)).astype(np.uint32),
            hashes=np.concatenate([c.hashes for c in chunks]),
            lengths=np.concatenate([c.lengths for c in chunks]),
            source=np.concatenate([c.source for c in chunks]),
            target=np.concatenate([c.target for c in chunks]),
            places=place_numbers(span.unit, span.first_line + rows) if self._job.keeps_places else None,
            scores=None if scored is None else scored[rows],
        )
        shards = _spread((keys[rows] >> np.uint64(32)), self._job.num_shards)
        if self._drops_duplicates:
            is_first = first_occurrences(pairs.hashes)
            report = report.merge(Report.of(dropped={DUPLICATE: int(np.count_nonzero(~is_first))}))
            pairs = select(pairs, np.flatnonzero(is_first))
            # By the text, so that duplicates from different spans meet in one shard.
            bits = np.frombuffer(pairs.hashes[:, :4].tobytes(), dtype="<u4").astype(np.uint64)
            shards = _spread(bits, self._job.num_shards)
        self._spill.write(span.number, pairs, shards, report)
        return first

    def _encode_chunk(
        self, text: TextChunk, first_row: int, scores: Mapping[str, NDArray[np.float32]]
    ) -> tuple[_Chunk, Report]:
        """Clean and encode a chunk; rows are counted within the span."""
        files = dict.fromkeys(Path(file).name for file in (text.source_file, text.target_file))
        known = Pairs(sources=text.sources, targets=text.targets, where=text.where, files=[*files], scores=scores)
        cleaned = self._cleaner.clean(text.sources, text.targets, known)
        empty = cleaned.dropped.get(EMPTY)
        if empty is not None and len(empty) and self._section.on_bad_pair == "error":
            row = int(empty[0])
            left = self._cleaner.clean([text.sources[row]], ["x"])  # cleaning may have emptied it
            side = "target" if left.sources else "source"
            raise UserError(
                f"{text.where(row)}: the {side} is empty; write text on both sides, or set prepare.on_bad_pair=drop"
            )
        encoded = self._encode_sides(cleaned.sources, cleaned.targets)
        lengths = np.stack([np.fromiter(map(len, side), np.int64) for side in encoded], axis=1)
        counted = lengths - self._num_tags(encoded[0])
        dropped, kept = self._by_pieces(counted, text, cleaned.rows)
        report = Report.of_chunk(text, cleaned, dropped={n: cleaned.rows[rows] for n, rows in dropped.items()})
        source, target = (np.fromiter(itertools.chain.from_iterable(side), self._dtype) for side in encoded)
        stored = lengths.astype(np.uint32)  # longer ones, which do not fit 16 bits, are dropped
        if len(kept) < len(lengths):
            source, target = take(source, stored[:, 0], kept), take(target, stored[:, 1], kept)
        hashes = np.empty((len(kept), 0), dtype=np.uint8)
        sides = [cleaned.sources[r] for r in kept], [cleaned.targets[r] for r in kept]
        report = report.merge(self._text_report(source, target, sides[0]))
        if self._drops_duplicates:
            hashes = _hashes(*sides)
        rows, sizes = cleaned.rows[kept] + first_row, lengths[kept].astype(np.uint16)
        return _Chunk(rows, source, target, sizes, hashes), report

    def _text_report(self, source: Pieces, target: Pieces, sources: list[str]) -> Report:
        """The report on unknown pieces of the kept pairs."""
        section = self._section
        is_tagged = section.tag_both_sides or section.target_tag is not None
        return dataclasses.replace(
            Report.empty(),
            pieces={
                side: PieceCount(unknown=int(np.count_nonzero(pieces == UNK_ID)), pieces=len(pieces))
                for side, pieces in zip(SIDES, (source, target), strict=True)
            },
            tags_as_text=self._tokenizer.tags_that_are_text(sources, behind_a_tag=is_tagged),
        )

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
            text = map(self._tokenizer.num_text_pieces, source_ids)
            tags[:, 0] = [len(ids) - number for ids, number in zip(source_ids, text, strict=True)]
        tags[:, 1] = int(self._section.tag_both_sides)
        return tags

    def _by_pieces(self, lengths: Rows, text: TextChunk, rows: Rows) -> tuple[dict[str, Rows], Rows]:
        """Rows to drop because of their pieces, of which tags do not count, by filter; and rows to keep."""
        longest, shortest = lengths.max(axis=1, initial=0), lengths.min(axis=1, initial=1 << 30)
        left = np.full(len(lengths), True)
        dropped = {}
        ratio = self._section.cleaning.max_length_ratio
        for name, bad in (
            (EMPTY, shortest == 0),  # text of which the tokenizer's normalisation leaves nothing
            (TOO_LONG, longest > self._section.max_pieces),
            (LENGTH_RATIO, longest > shortest * ratio if ratio is not None else None),
        ):
            if bad is None:
                continue
            bad_rows = np.flatnonzero(bad & left)
            if len(bad_rows) and name in (EMPTY, TOO_LONG) and self._section.on_bad_pair == "error":
                row = int(bad_rows[0])
                raise UserError(
                    f"{text.where(int(rows[row]))}: {self._describe(lengths[row])}, or prepare.on_bad_pair=drop"
                )
            left[bad_rows] = False
            dropped[name] = bad_rows
        return dropped, np.flatnonzero(left)

    def _describe(self, lengths: Rows) -> str:
        if not lengths.all():
            return f"the {'target' if lengths[0] else 'source'} is empty; allowed is text on both sides"
        most = self._section.max_pieces
        side, longest = ("source", lengths[0]) if lengths[0] > most else ("target", lengths[1])
        return f"the {side} has {longest} pieces; allowed is at most prepare.max_pieces={most}"


def make_cleaner(section: PrepareSection, held_out: HeldOutPairs) -> Cleaner:
    """Make the filters of text.

    Args:
        section: configures them.
        held_out: the pairs of the validation and test sets, if a filter needs them.

    Raises:
        UserError: a setting cannot be used, as a package is missing or a script or language is unknown.
    """
    source, target = section.languages
    files = [path.name for path in corpus_paths(section.train, section.root)]
    corpus = Corpus(source_language=source, target_language=target, held_out=held_out, files=files)
    return Cleaner(filters_of(section), corpus)


def select(pairs: PairRows, rows: Rows) -> PairRows:
    """Some rows, in the order of `rows`."""
    if len(rows) == len(pairs) and bool((rows == np.arange(len(rows))).all()):
        return pairs
    return PairRows(
        keys=pairs.keys[rows],
        hashes=pairs.hashes[rows],
        lengths=pairs.lengths[rows],
        source=take(pairs.source, pairs.lengths[:, 0], rows),
        target=take(pairs.target, pairs.lengths[:, 1], rows),
        places=None if pairs.places is None else pairs.places[rows],
        scores=None if pairs.scores is None else pairs.scores[rows],
    )


def _spread(bits: NDArray[np.uint64], num_shards: int) -> Rows:
    """The shard of each pair, from 32 random bits each."""
    return ((bits * np.uint64(num_shards)) >> np.uint64(32)).astype(np.int64)


def _hashes(sources: list[str], targets: list[str]) -> NDArray[np.uint8]:
    """(pairs, 16): BLAKE2b of each pair's text."""
    digests = b"".join(
        hashlib.blake2b(f"{s}\0{t}".encode(), digest_size=HASH_BYTES).digest()
        for s, t in zip(sources, targets, strict=True)
    )
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, HASH_BYTES)
