"""Intermediate files between encoding and writing: the pairs of a span, sorted by shard.

A span's file holds a segment for each shard, so that gathering a shard takes one read per span. The segments are listed
in the span's table, which is written last, so that a span with a table is complete.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_pipeline.preparation.report import Report
from data_pipeline.prepared.index import PLACE_BYTES

HASH_BYTES = 16

Pieces = NDArray[np.unsignedinteger]


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
        self, folder: Path, *, num_shards: int, has_hashes: bool, dtype: str, has_places: bool = False
    ) -> None:
        self.folder = folder
        self.num_shards = num_shards
        self._hash_bytes = HASH_BYTES if has_hashes else 0
        self._has_places = has_places
        self._dtype = np.dtype(dtype)

    def has(self, span: int) -> bool:
        """Whether a span is complete."""
        return self._table(span).exists()

    def write(self, span: int, pairs: PairRows, shards: NDArray[np.int64], report: Report) -> None:
        """Write a span's pairs, given the shard of each: always the same bytes, and atomically."""
        order = np.argsort(shards, kind="stable")
        lengths = pairs.lengths[order]
        source = take(pairs.source, pairs.lengths[:, 0], order)
        target = take(pairs.target, pairs.lengths[:, 1], order)
        keys, hashes = pairs.keys[order], pairs.hashes[order]
        places = np.empty(0, dtype=np.uint64) if pairs.places is None else pairs.places[order]
        table = np.zeros((self.num_shards, 3), dtype=np.uint32)
        table[:, 0] = np.bincount(shards, minlength=self.num_shards)
        rows = np.concatenate([[0], np.cumsum(table[:, 0], dtype=np.int64)])
        ends = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(lengths, axis=0, dtype=np.int64)])[rows]
        table[:, 1:] = np.diff(ends, axis=0)
        beside = self.folder / f"{span:08d}.{os.getpid()}.tmp"
        with beside.open("wb") as file:
            for shard in np.flatnonzero(table[:, 0]).tolist():
                first, last = int(rows[shard]), int(rows[shard + 1])
                (s0, t0), (s1, t1) = ends[shard].tolist(), ends[shard + 1].tolist()
                for array in (
                    keys[first:last],
                    hashes[first:last],
                    places[first:last],
                    lengths[first:last],
                    source[s0:s1],
                    target[t0:t1],
                ):
                    file.write(array.tobytes())
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._data(span))
        with beside.open("wb") as file:
            np.savez(file, table=table, report=np.frombuffer(report.to_json(), dtype=np.uint8))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._table(span))

    def report(self, span: int) -> Report:
        """The report on a span's pairs."""
        with np.load(self._table(span), allow_pickle=False) as content:
            return Report.from_json(content["report"].tobytes())

    def collect_segments(self, num_spans: int) -> Path:
        """Merge the spans' tables into one file sorted by shard, in which `read` finds a shard's segments together."""
        path = self.folder / "segments.npy"
        segments = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint64, shape=(self.num_shards, num_spans, 4))
        for span in range(num_spans):
            with np.load(self._table(span), allow_pickle=False) as content:
                table = content["table"].astype(np.uint64)
            bytes_a_pair = 8 + self._hash_bytes + PLACE_BYTES * self._has_places
            sizes = table[:, 0] * bytes_a_pair + (table[:, 1] + table[:, 2]) * self._dtype.itemsize
            segments[:, span, 0] = np.cumsum(sizes) - sizes
            segments[:, span, 1:] = table
        segments.flush()
        return path

    def read(self, shard: int) -> PairRows:
        """All pairs of a shard, in corpus order. `collect_segments` must have been called before.

        Raises:
            RuntimeError: a file has been truncated.
        """
        segments = np.load(self.folder / "segments.npy", mmap_mode="r", allow_pickle=False)[shard].astype(np.int64)
        pairs, source_tokens, target_tokens = segments[:, 1:].sum(axis=0).tolist()
        rows = PairRows(
            keys=np.empty(pairs, dtype=np.uint32),
            hashes=np.empty((pairs, self._hash_bytes), dtype=np.uint8),
            lengths=np.empty((pairs, 2), dtype=np.uint16),
            source=np.empty(source_tokens, dtype=self._dtype),
            target=np.empty(target_tokens, dtype=self._dtype),
            places=np.empty(pairs, dtype=np.uint64) if self._has_places else None,
        )
        done = np.zeros(3, dtype=np.int64)
        for span in np.flatnonzero(segments[:, 1]).tolist():
            after = done + segments[span, 1:]
            with self._data(span).open("rb", buffering=0) as file:
                file.seek(segments[span, 0])
                for array, column in self._columns(rows):
                    wanted = array[done[column] : after[column]]
                    if wanted.size and file.readinto(wanted.reshape(-1).view(np.uint8).data) != wanted.nbytes:
                        raise RuntimeError(f"{self._data(span)}: is cut short; remove its folder and prepare again")
            done = after
        return rows

    def _columns(self, rows: PairRows) -> Iterator[tuple[NDArray[np.generic], int]]:
        yield rows.keys, 0
        if self._hash_bytes:
            yield rows.hashes, 0
        if rows.places is not None:
            yield rows.places, 0
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
