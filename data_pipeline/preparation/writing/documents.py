"""Documents: their lines get one random key, by which they come into one shard, one after the other."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection

IN_EXTRA = "document"
"""Name in `TextChunk.extra` of the ids of documents."""
MAX_LINES = 1 << 16
"""Lines after which a document has another key: a field that is the same in all lines would fill one shard."""
MAX_BEHIND = 255
"""Most that a dataset says of the lines that follow a pair; it has a byte for each."""


def document_fields(section: PrepareSection) -> dict[str, str]:
    """The field with the ids of documents, by its name in `TextChunk.extra`; none without documents."""
    field = section.train.document_field
    return {} if field is None else {IN_EXTRA: str(field)}


def document_keys(
    names: Sequence[str], own: NDArray[np.uint64], *, seed: int, unit: int, first_line: int
) -> NDArray[np.uint64]:
    """(pairs,): the key of each pair's document; its own where the id is empty.

    Args:
        names: (pairs,): ids of documents, of consecutive lines of a unit.
        own: (pairs,): random keys.
        seed: `prepare.seed`.
        unit: number of the unit. The same id in two units is two documents.
        first_line: number of the first line in the unit.
    """
    keys, before, key = own.copy(), ("", 0), 0
    for row, name in enumerate(names):
        if not name:
            continue
        if before != (before := (name, (first_line + row) // MAX_LINES)):
            text = f"{seed} {unit} {before[1]} {name}".encode()
            key = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        keys[row] = key
    return keys


def count_behind(keys: NDArray[np.uint64], places: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """(pairs,): how many of the next pairs are the next lines of the same document, at most `MAX_BEHIND`.

    Args:
        keys: (pairs,): from `document_keys`, in the order of a shard.
        places: (pairs,): `index.place_numbers` of each.
    """
    is_last = np.ones(len(keys), dtype=bool)
    is_last[:-1] = (keys[1:] != keys[:-1]) | (places[1:] != places[:-1] + np.uint64(1))
    lasts, rows = np.flatnonzero(is_last), np.arange(len(keys))
    counts: NDArray[np.int64] = lasts[np.searchsorted(lasts, rows)] - rows
    return counts.clip(max=MAX_BEHIND).astype(np.uint8)
