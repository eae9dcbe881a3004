"""Decodes a block of pairs from the bytes of its tar members, by webdataset's own functions.

webdataset alone silently drops samples of truncated or corrupt tars, and its decoders run pickles. So the bytes are
compared with their hash first, and arrays are the only members.
"""

import io
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.errors import ReadError

PARTS = ("len.npy", "src.npy", "tgt.npy")

Pieces = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class Block:
    """Pairs of raw pieces, without special ids."""

    lengths: NDArray[np.uint16]
    """(pairs, 2)."""
    source: Pieces
    """Source pieces of all pairs, one after the other."""
    target: Pieces

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return self.source.nbytes + self.target.nbytes + self.lengths.nbytes


def decode_block(data: bytes, key: str) -> Block:
    """Decode the bytes of a block, whose hash is the index's.

    Args:
        data: its tar members.
        key: the webdataset key of its sample.

    Raises:
        ReadError: it has other members, or they are no arrays.
    """
    os.environ.setdefault("WDS_SECURE", "1")
    from webdataset.tariterators import group_by_keys, tar_file_iterator  # imports torch

    try:
        members = list(tar_file_iterator(io.BytesIO(data), skip_meta=None))
        names = sorted(member["fname"] for member in members)
        if names != [f"{key}.{part}" for part in PARTS]:
            raise ValueError(f"has members {', '.join(names)}; allowed is {', '.join(PARTS)} of {key}")
        [sample] = group_by_keys({**member, "__url__": key} for member in members)
        return Block(*(np.load(io.BytesIO(sample[part]), allow_pickle=False) for part in PARTS))
    except Exception as error:  # tarfile and numpy raise anything of broken headers
        raise ReadError(f"cannot be decoded: {' '.join(str(error).split())}") from error
