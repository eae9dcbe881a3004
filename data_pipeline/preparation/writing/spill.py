"""Intermediate files between encoding and writing: the pairs of a span, sorted by shard.

A span's file holds a segment for each shard, so that gathering a shard takes one read per span. The segments are listed
with their hashes in the span's table, which is written last, so that a span with a table is complete.
"""

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.process.files.inside import name_of, opened, replacing
from data_pipeline.preparation.report import Report
from data_pipeline.prepared.index import PLACE_BYTES

HASH_BYTES = 16
KEY_BYTES = SCORE_BYTES = 4
LENGTH_BYTES = 4
"""Of both sides."""
DIGEST_BYTES = 8
"""Bytes of a segment's hash."""

Pieces = NDArray[np.unsignedinteger]


class DamagedSpanError(RuntimeError):
    """A span's files are not as they were written. The message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRows:
    """Encoded pairs in corpus order."""

    keys: NDArray[np.uint32]
    """(pairs,): random numbers that give the order within a shard."""
    hashes: NDArray[np.uint8]
    """(pairs, 16): hashes of the text, or (pairs, 0) if duplicates are kept."""
    lengths: NDArray[np.uint16]
    """(pairs, 2): pieces of source and target."""
    source: Pieces
    """Source pieces of all pairs, one after the other."""
    target: Pieces
    places: NDArray[np.uint64] | None = None
    """(pairs,): `index.place_number` of each; None if places are not recorded."""
    scores: NDArray[np.float32] | None = None
    """(pairs, scores): NaN where a pair has none; None if pairs have no scores."""

    def __len__(self) -> int:
        return len(self.lengths)


def take(pieces: Pieces, lengths: NDArray[np.unsignedinteger], rows: NDArray[np.int64]) -> Pieces:
    """The pieces of some rows, in the order of `rows`.

    Args:
        pieces: of all rows, one after the other.
        lengths: (all rows,).
        rows: the rows to take.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    return take_at(pieces, ends[rows] - lengths[rows], lengths[rows])


def take_at(pieces: Pieces, starts: NDArray[np.int64], lengths: NDArray[np.unsignedinteger]) -> Pieces:
    """The pieces that start at `starts`, with these numbers."""
    shift = starts - np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)])
    return pieces[np.repeat(shift, lengths) + np.arange(int(lengths.sum(dtype=np.int64)))]


class SpillFolder:
    """The files of a preparation's spans."""

    def __init__(
        self,
        folder: Path,
        *,
        num_shards: int,
        has_hashes: bool,
        dtype: str,
        has_places: bool = False,
        num_scores: int = 0,
    ) -> None:
        self.folder = folder
        self.num_shards = num_shards
        self._hash_bytes = HASH_BYTES if has_hashes else 0
        self._has_places = has_places
        self._num_scores = num_scores
        self._dtype = np.dtype(dtype)

    def missing(self, spans: Iterable[int]) -> list[int]:
        """Those of the spans that are not complete, as the folder is now listed: other machines write here too."""
        there = frozenset(self.folder.iterdir())
        return [span for span in spans if self._table(span) not in there]

    def write(self, span: int, pairs: PairRows, shards: NDArray[np.int64], report: Report) -> None:
        """Write a span's pairs: always the same bytes, and atomically.

        Args:
            span: its number.
            pairs: its pairs that are kept.
            shards: (pairs,) the shard of each.
            report: on all of its pairs.
        """
        order = np.argsort(shards, kind="stable")
        lengths = pairs.lengths[order]
        source = take(pairs.source, pairs.lengths[:, 0], order)
        target = take(pairs.target, pairs.lengths[:, 1], order)
        keys, hashes = pairs.keys[order], pairs.hashes[order]
        places = np.empty(0, dtype=np.uint64) if pairs.places is None else pairs.places[order]
        scores = np.empty(0, dtype=np.float32) if pairs.scores is None else pairs.scores[order]
        table = np.zeros((self.num_shards, 3), dtype=np.uint32)
        table[:, 0] = np.bincount(shards, minlength=self.num_shards)
        rows = np.concatenate([[0], np.cumsum(table[:, 0], dtype=np.int64)])
        ends = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(lengths, axis=0, dtype=np.int64)])[rows]
        table[:, 1:] = np.diff(ends, axis=0)
        digests = np.zeros(self.num_shards, dtype=np.uint64)
        with replacing(self._data(span), sync=True) as file:
            for shard in np.flatnonzero(table[:, 0]).tolist():
                first, last = int(rows[shard]), int(rows[shard + 1])
                (s0, t0), (s1, t1) = ends[shard].tolist(), ends[shard + 1].tolist()
                digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
                for array in (
                    keys[first:last],
                    hashes[first:last],
                    places[first:last],
                    scores[first:last],
                    lengths[first:last],
                    source[s0:s1],
                    target[t0:t1],
                ):
                    digest.update(content := array.tobytes())
                    file.write(content)
                digests[shard] = int.from_bytes(digest.digest(), "little")
        said = np.frombuffer(report.to_json(), dtype=np.uint8)
        with replacing(self._table(span), sync=True) as file:
            np.savez(file, table=table, digests=digests, report=said)

    def report(self, span: int) -> Report:
        """The report on a span's pairs.

        Raises:
            DamagedSpanError: its table is damaged.
        """
        return self._read_table(span)[1]

    def is_whole(self, span: int) -> bool:
        """Whether a span is complete, and all of it as it was written."""
        try:
            segments = self._read_table(span)[0]
            for shard in np.flatnonzero(segments[:, 1]).tolist():
                self._read_segment(span, segments[shard], self._rows(segments[shard : shard + 1]), np.zeros(3, "i8"))
        except (DamagedSpanError, OSError):
            return False
        return True

    def remove(self, span: int) -> None:
        """Remove a span, so that it is encoded again."""
        self._table(span).unlink(missing_ok=True)
        self._data(span).unlink(missing_ok=True)

    def collect_segments(self, num_spans: int) -> Path:
        """Merge the spans' tables into one file sorted by shard, in which `read` finds a shard's segments together.

        Raises:
            DamagedSpanError: a span's table is damaged.
        """
        path = self.folder / "segments.npy"
        shape = (self.num_shards, num_spans, 5)
        with replacing(path) as file:
            segments = np.lib.format.open_memmap(name_of(file), mode="w+", dtype=np.uint64, shape=shape)
        for span in range(num_spans):
            segments[:, span] = self._read_table(span)[0]
        segments.flush()
        return path

    def read(self, shard: int) -> PairRows:
        """All pairs of a shard, in corpus order. `collect_segments` must have been called before.

        Raises:
            DamagedSpanError: a span's file is not as it was written.
        """
        path = self.folder / "segments.npy"
        segments = np.load(path, mmap_mode="r", allow_pickle=False)[shard]
        rows, done = self._rows(segments), np.zeros(3, dtype=np.int64)
        for span in np.flatnonzero(segments[:, 1]).tolist():
            self._read_segment(span, segments[span], rows, done)
            done += segments[span, 1:4].astype(np.int64)
        return rows

    def _read_table(self, span: int) -> tuple[NDArray[np.uint64], Report]:
        """(shards, 5): offset of a span's segments, their pairs, source and target pieces, and hash; and the report."""
        try:
            with opened(self._table(span)) as file, np.load(file, allow_pickle=False) as content:
                table, digests = content["table"].astype(np.uint64), content["digests"]
                report = Report.from_json(content["report"].tobytes())
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, UserError) as error:
            raise DamagedSpanError(f"{self._table(span)}: is damaged") from error
        bytes_a_pair = LENGTH_BYTES + KEY_BYTES + self._hash_bytes
        bytes_a_pair += PLACE_BYTES * self._has_places + SCORE_BYTES * self._num_scores
        sizes = table[:, 0] * bytes_a_pair + (table[:, 1] + table[:, 2]) * self._dtype.itemsize
        return np.column_stack([np.cumsum(sizes) - sizes, table, digests]), report

    def _rows(self, segments: NDArray[np.uint64]) -> PairRows:
        """Room for the pairs of some segments."""
        pairs, source_tokens, target_tokens = segments[:, 1:4].astype(np.int64).sum(axis=0).tolist()
        return PairRows(
            keys=np.empty(pairs, dtype=np.uint32),
            hashes=np.empty((pairs, self._hash_bytes), dtype=np.uint8),
            lengths=np.empty((pairs, 2), dtype=np.uint16),
            source=np.empty(source_tokens, dtype=self._dtype),
            target=np.empty(target_tokens, dtype=self._dtype),
            places=np.empty(pairs, dtype=np.uint64) if self._has_places else None,
            scores=np.empty((pairs, self._num_scores), dtype=np.float32) if self._num_scores else None,
        )

    def _read_segment(self, span: int, segment: NDArray[np.uint64], rows: PairRows, done: NDArray[np.int64]) -> None:
        """Read a segment into `rows`, behind the pairs and pieces that are done.

        Raises:
            DamagedSpanError: it is not as it was written.
        """
        after = done + segment[1:4].astype(np.int64)
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        try:
            file = opened(self._data(span), buffering=0)
        except FileNotFoundError as error:
            raise DamagedSpanError(f"{self._data(span)}: is missing") from error
        with file:
            file.seek(int(segment[0]))
            for array, column in self._columns(rows):
                wanted = array[done[column] : after[column]]
                content = wanted.reshape(-1).view(np.uint8).data
                if wanted.size and file.readinto(content) != wanted.nbytes:
                    raise DamagedSpanError(f"{self._data(span)}: is cut short")
                digest.update(content)
        if int.from_bytes(digest.digest(), "little") != int(segment[4]):
            raise DamagedSpanError(f"{self._data(span)}: is not as it was written")

    def _columns(self, rows: PairRows) -> Iterator[tuple[NDArray[np.generic], int]]:
        yield rows.keys, 0
        if self._hash_bytes:
            yield rows.hashes, 0
        if rows.places is not None:
            yield rows.places, 0
        if rows.scores is not None:
            yield rows.scores, 0
        yield rows.lengths, 0
        yield rows.source, 1
        yield rows.target, 2

    def _data(self, span: int) -> Path:
        return self.folder / f"{span:08d}.pairs"

    def _table(self, span: int) -> Path:
        return self.folder / f"{span:08d}.npz"


def first_occurrences(hashes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(pairs,): whether no earlier row has the same hash.

    Args:
        hashes: (pairs, 16).
    """
    halves = np.ascontiguousarray(hashes).view(np.uint64)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # a stable sort keeps equal ones in corpus order
    is_first = np.ones(len(hashes), dtype=bool)
    same = (halves[order[1:]] == halves[order[:-1]]).all(axis=1)
    is_first[order[1:][same]] = False
    return is_first
