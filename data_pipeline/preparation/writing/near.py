"""Near duplicates: pairs that nearly repeat an earlier pair of the corpus, by MinHash (Broder, 1997).

Encoding signs each pair: 128 numbers of which two pairs have about as many in common as their shingles are similar. A
band is a few of these numbers together; pairs that are similar enough nearly surely share one of their bands, others
seldom (Leskovec et al., Mining of Massive Datasets, chapter 3). Between encoding and writing, the bands of all spans
are joined, a part of all hashes at a time, and pairs that share a band are compared by their signatures. A pair goes if
an earlier one is similar enough, whether that one stays or not: so it depends neither on the order in which parts of
the hashes are joined, nor on spans, processes and parts.

A span's file has, for its pairs in corpus order: places, text hashes, the low bytes of the signatures (Li and König,
2010), and then the hashes of all bands, ascending, with the row of each.
"""

import functools
import itertools
import math
import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from configs import CleaningSection, UserError
from configs.process.files.inside import reading, replacing
from configs.process.progress import Progress
from data_pipeline.preparation.pool import run_tasks
from data_pipeline.preparation.shingles import Hashes, mix, shingles
from data_pipeline.preparation.writing.spill import PairRows, SpillFolder
from data_pipeline.prepared.index import map_table

SLOTS = 128
"""Numbers of a signature."""
SEED = 1
ALGORITHM = 2
"""Rensa's version of its algorithm: another would give other signatures, so other datasets."""
LEAST_RECALL = 0.99
"""Fraction of pairs exactly at the threshold that must share a band."""
ENTRIES = 1 << 21
"""Bands of a partition, which is what one process joins at a time."""
CHARACTERS = 1 << 20
"""Characters of the pairs that are signed at a time; each takes some 80 bytes then."""
MEMBERS = 1 << 16
"""Pairs whose signatures are compared at a time."""
LEADERS = 64
"""With how many of the first pairs that have a band the others are compared. Without a limit, a phrase of which there
are a million variants would take a million times a million comparisons."""
BYTES_A_BYTE = 2.0
"""Estimated bytes of these files per byte of text."""
DROPPED_FILE = "near-duplicates.npy"
_OF_TARGET = np.uint64(0x2545F4914F6CDD1D)
_LOW = np.uint64(0xFF)


def num_rows(similarity: float) -> int:
    """Numbers of a signature in a band: as many as still give `LEAST_RECALL`, as more make fewer candidates."""
    rows = range(1, SLOTS + 1)
    return max((r for r in rows if (1 - similarity**r) ** (SLOTS // r) <= 1 - LEAST_RECALL), default=1)


def least_agreement(similarity: float) -> int:
    """In how many of their signatures' low bytes similar pairs agree; a 256th do so by chance."""
    return math.ceil(SLOTS * (similarity + (1 - similarity) / 256) - 1e-9)


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of some pairs."""

    slots: NDArray[np.uint8]
    """(pairs, SLOTS): the low bytes."""
    bands: Hashes
    """(pairs, bands): a hash of each band."""
    has_shingles: NDArray[np.bool_]
    """(pairs,): false where nothing can be compared."""

    @classmethod
    def joined(cls, parts: Sequence["Signatures"]) -> "Signatures":
        """Those of several chunks."""
        return cls(
            np.concatenate([part.slots for part in parts]),
            np.concatenate([part.bands for part in parts]),
            np.concatenate([part.has_shingles for part in parts]),
        )

    def select(self, rows: NDArray[np.int64]) -> "Signatures":
        """Those of some rows."""
        return Signatures(self.slots[rows], self.bands[rows], self.has_shingles[rows])


class Signer:
    """Signs pairs, in one process.

    Args:
        of: the side that is signed, or `pair`: the shingles of both sides together.
        similarity: the threshold, on which the bands depend.

    Raises:
        UserError: the package rensa is missing, or of another version.
    """

    def __init__(self, of: Literal["source", "target", "pair"], similarity: float) -> None:
        self._of = of
        self._rows = num_rows(similarity)
        self._sign = _signing()

    def sign(self, sources: list[str], targets: list[str]) -> Signatures:
        """The signatures of some pairs, of long ones a few at a time."""
        sizes = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
        which = np.cumsum(sizes, dtype=np.int64) // CHARACTERS
        cuts = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(sizes)]
        return Signatures.joined([self._some(sources[a:b], targets[a:b]) for a, b in itertools.pairwise(cuts)])

    def _some(self, sources: list[str], targets: list[str]) -> Signatures:
        hashes, begins = self._shingles(sources, targets)
        matrix = self._sign(hashes, begins.astype(np.uint64), SLOTS, SEED)
        numbers = np.array(matrix.to_rows(), dtype=np.uint64).reshape(len(sources), SLOTS)
        bands = SLOTS // self._rows
        hashes_of_bands = np.broadcast_to(np.arange(bands, dtype=np.uint64), (len(sources), bands))
        for row in range(self._rows):
            hashes_of_bands = mix(hashes_of_bands ^ numbers[:, row : bands * self._rows : self._rows]) * np.uint64(3)
        return Signatures((numbers & _LOW).astype(np.uint8), mix(hashes_of_bands), np.diff(begins) > 0)

    def _shingles(self, sources: list[str], targets: list[str]) -> tuple[Hashes, NDArray[np.int64]]:
        if self._of != "pair":
            return shingles(sources if self._of == "source" else targets)
        lines = [line for pair in zip(sources, targets, strict=True) for line in pair]
        hashes, begins = shingles(lines)
        is_target = np.repeat(np.arange(len(lines)) % 2 == 1, np.diff(begins))
        return np.where(is_target, mix(hashes ^ _OF_TARGET), hashes), begins[::2]


def make_signer(section: CleaningSection) -> Signer | None:
    """What signs pairs for `prepare.cleaning.near_duplicates`; None if they are kept.

    Raises:
        UserError: the package rensa is missing, or of another version.
    """
    return None if section.near_duplicates == "keep" else Signer(section.near_duplicates, section.min_similarity)


@functools.cache
def _signing() -> Callable[..., Any]:
    os.environ.setdefault("RAYON_NUM_THREADS", "1")  # there is a process a core already
    try:
        from rensa import RMinHash
    except ImportError as error:
        raise UserError(
            "prepare.cleaning.near_duplicates: the package rensa is missing; install it with `pip install zeromt[near]`"
        ) from error
    if (version := getattr(RMinHash, "ALGORITHM_VERSION", None)) != ALGORITHM:
        raise UserError(
            f"prepare.cleaning.near_duplicates: rensa has version {version} of its algorithm, whose signatures differ; "
            f"allowed is {ALGORITHM}: install it with `pip install zeromt[near]`"
        )
    sign: Callable[..., Any] = RMinHash.digest_matrix_from_flat_token_hashes
    return sign


def spilled(pairs: PairRows, signatures: Signatures) -> list[NDArray[Any]]:
    """What a span's file consists of, given its pairs, in corpus order."""
    assert pairs.places is not None
    rows = np.flatnonzero(signatures.has_shingles)
    hashes = signatures.bands[rows].reshape(-1)
    order = np.argsort(hashes, kind="stable")
    texts = pairs.hashes[:, :8].copy().view(np.uint64).reshape(-1) if pairs.hashes.shape[1] else pairs.places
    return [
        np.array([len(pairs), len(hashes)], dtype=np.uint64),
        pairs.places,
        texts,
        signatures.slots,
        hashes[order],
        np.repeat(rows, signatures.bands.shape[1])[order].astype(np.uint32),
    ]


@dataclass(frozen=True, slots=True)
class _SpanFile:
    """A span's file, on the disk."""

    places: NDArray[np.uint64]
    texts: Hashes
    slots: NDArray[np.uint8]
    hashes: Hashes
    rows: NDArray[np.uint32]

    @classmethod
    def map(cls, path: Path) -> "_SpanFile":
        with reading(path) as file:
            content = np.memmap(file, np.uint8, "r")
        pairs, entries = content[:16].view(np.uint64).tolist()
        sizes = np.cumsum([16, 8 * pairs, 8 * pairs, SLOTS * pairs, 8 * entries, 4 * entries])
        places, texts, slots, hashes, rows = (content[a:b] for a, b in itertools.pairwise(sizes.tolist()))
        return cls(
            places.view(np.uint64),
            texts.view(np.uint64),
            slots.reshape(pairs, SLOTS),
            hashes.view(np.uint64),
            rows.view(np.uint32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NearJob:
    """The part of the work that a process needs to join bands."""

    spill: SpillFolder
    num_spans: int
    num_pairs: int
    """Of the raw corpus."""
    folder: Path
    """For what each partition finds."""
    similarity: float

    @property
    def num_entries(self) -> int:
        """Bands of all pairs, if all were signed."""
        return self.num_pairs * (SLOTS // num_rows(self.similarity))

    @property
    def num_partitions(self) -> int:
        """Number of equal parts of all hashes; the result does not depend on it."""
        return 1 + self.num_entries // ENTRIES

    def open(self) -> Callable[[int], int]:
        """The function that joins the bands of a partition and returns their number."""
        return self.join

    def is_complete(self, partition: int) -> bool:
        """Whether a partition was joined, and what was found is as it was written."""
        try:
            self.read(partition)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False
        return True

    def read(self, partition: int) -> NDArray[np.uint64]:
        """Places of the pairs that a partition found to be near duplicates, ascending."""
        with reading(self._path(partition)) as file, np.load(file, allow_pickle=False) as content:
            places: NDArray[np.uint64] = content["places"]
        return places

    def join(self, partition: int) -> int:
        """Find the near duplicates among pairs that share a band of this partition."""
        hashes, spans, rows = self._entries(partition)
        order = np.argsort(hashes, kind="stable")  # entries with one hash stay in corpus order
        hashes, spans, rows = hashes[order], spans[order], rows[order]
        is_first = np.ones(len(hashes), dtype=bool)
        is_first[1:] = hashes[1:] != hashes[:-1]
        firsts = np.flatnonzero(is_first)
        first = np.repeat(firsts, np.diff(firsts, append=len(hashes)))
        """Of each entry, the first with the same hash."""
        later = np.flatnonzero(~is_first)
        found = [np.empty(0, dtype=np.uint64)]
        for begin in range(0, len(later), MEMBERS):
            some = later[begin : begin + MEMBERS]
            found.append(self._near(spans, rows, first[some], some))
        with replacing(self._path(partition), sync=True) as file:
            np.savez(file, places=np.unique(np.concatenate(found)))
        return len(hashes)

    def _entries(self, partition: int) -> tuple[Hashes, NDArray[np.uint32], NDArray[np.uint32]]:
        """Hashes of the bands in a partition, in corpus order, and the span and row of each."""
        bounds = [number * 2**64 // self.num_partitions for number in (partition, partition + 1)]
        hashes, spans, rows = [], [], []
        for span in range(self.num_spans):
            file = _SpanFile.map(self.spill.near_path(span))
            begin, end = (
                int(np.searchsorted(file.hashes, np.uint64(bound))) if bound < 2**64 else len(file.hashes)
                for bound in bounds
            )
            hashes.append(np.array(file.hashes[begin:end]))
            rows.append(np.array(file.rows[begin:end]))
            spans.append(np.full(end - begin, span, dtype=np.uint32))
        return np.concatenate(hashes), np.concatenate(spans), np.concatenate(rows)

    def _near(
        self, spans: NDArray[np.uint32], rows: NDArray[np.uint32], firsts: NDArray[np.int64], some: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Places of those among some entries of which an earlier entry with the same hash is similar enough.

        Args:
            spans, rows: of all entries.
            firsts: of each of `some`, the first entry with the same hash.
            some: numbers of entries, ascending.
        """
        heads, begins = np.unique(firsts, return_index=True)
        counts = np.minimum(LEADERS, some[np.append(begins[1:], len(some)) - 1] - heads)
        leaders = np.repeat(heads - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        wanted = np.union1d(some, leaders)
        places, texts, slots = self._gather(spans[wanted], rows[wanted])
        own, first = np.searchsorted(wanted, some), np.searchsorted(wanted, firsts)
        left, found = np.arange(len(some)), []
        for number in range(LEADERS):
            left = left[some[left] - firsts[left] > number]
            mine, leader = own[left], first[left] + number
            is_near = np.count_nonzero(slots[mine] == slots[leader], axis=1) >= least_agreement(self.similarity)
            is_near &= texts[mine] != texts[leader]  # the same text is no near duplicate but a duplicate
            found.append(places[mine[is_near]])
            left = left[~is_near]
        return np.concatenate(found)

    def _gather(
        self, spans: NDArray[np.uint32], rows: NDArray[np.uint32]
    ) -> tuple[NDArray[np.uint64], Hashes, NDArray[np.uint8]]:
        """Places, text hashes and signatures of some pairs."""
        places, texts = np.empty(len(spans), dtype=np.uint64), np.empty(len(spans), dtype=np.uint64)
        slots = np.empty((len(spans), SLOTS), dtype=np.uint8)
        by_span = np.argsort(spans, kind="stable")
        numbers, begins = np.unique(spans[by_span], return_index=True)
        for span, those in zip(numbers.tolist(), np.split(by_span, begins[1:]), strict=True):
            file = _SpanFile.map(self.spill.near_path(span))
            places[those], texts[those] = file.places[rows[those]], file.texts[rows[those]]
            slots[those] = file.slots[rows[those]]
        return places, texts, slots

    def _path(self, partition: int) -> Path:
        return self.folder / f"{partition:06d}.npz"


def find_near_duplicates(job: NearJob, workers: int) -> None:
    """Join the bands of all partitions, and list the places of all near duplicates in `DROPPED_FILE`.

    Args:
        job: the spans, all encoded.
        workers: number of processes.

    Raises:
        DamagedSpanError: a span's file is not as it was written.
    """
    path = job.folder / DROPPED_FILE
    if path.exists():
        return
    job.folder.mkdir(exist_ok=True)
    for span in range(job.num_spans):
        job.spill.check_near(span)
    missing = [partition for partition in range(job.num_partitions) if not job.is_complete(partition)]
    with Progress("near duplicates", job.num_entries) as progress:
        for entries in run_tasks(job, missing, max(1, min(workers, len(missing)))):
            progress.advance(entries)
    places = np.unique(np.concatenate([job.read(partition) for partition in range(job.num_partitions)]))
    with replacing(path, sync=True) as file:
        np.save(file, places, allow_pickle=False)


def are_dropped(places: NDArray[np.uint64], folder: Path) -> NDArray[np.bool_]:
    """(pairs,): whether the pairs at some places are near duplicates.

    Args:
        places: (pairs,).
        folder: in which `find_near_duplicates` listed them.
    """
    dropped = map_table(folder / DROPPED_FILE)
    at = np.searchsorted(dropped, places)
    is_dropped = np.zeros(len(places), dtype=bool)
    inside = at < len(dropped)
    is_dropped[inside] = dropped[at[inside]] == places[inside]
    return is_dropped
