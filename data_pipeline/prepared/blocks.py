"""Decodes a block of pairs from the bytes of its tar members, by webdataset's own functions.

webdataset alone silently drops samples of truncated or corrupt tars, and its decoders run pickles. So the bytes are
compared with their hash first, and arrays are the only members.
"""

import io
import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.errors import DataError
from data_pipeline.tokenizer import UNK_ID

PARTS = ("len.npy", "src.npy", "tgt.npy")

Pieces = NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """A block according to the index."""

    shard: str
    key: str
    """The webdataset key of its sample."""
    pairs: int
    source_tokens: int
    target_tokens: int
    token_dtype: str
    source_vocab_size: int
    target_vocab_size: int

    def error(self, what: str) -> DataError:
        """An error that names shard and block."""
        return DataError(f"{self.shard}: block {self.key}: {what}")


@dataclass(frozen=True, slots=True)
class Block:
    """Pairs of raw pieces, without special ids."""

    source: Pieces
    """Source pieces of all pairs, one after the other."""
    target: Pieces
    lengths: NDArray[np.uint16]
    """(pairs, 2)."""

    @property
    def num_bytes(self) -> int:
        """Memory of the arrays."""
        return self.source.nbytes + self.target.nbytes + self.lengths.nbytes


def decode_block(data: bytes, spec: BlockSpec) -> Block:
    """Decode the bytes of a block, whose hash is the index's.

    Raises:
        DataError: members, types, counts or ids differ from the index.
    """
    os.environ.setdefault("WDS_SECURE", "1")
    from webdataset.tariterators import group_by_keys, tar_file_iterator  # imports torch

    try:
        members = list(tar_file_iterator(io.BytesIO(data), skip_meta=None))
        [sample] = group_by_keys({**member, "__url__": spec.shard} for member in members)
        if sorted(member["fname"] for member in members) != [f"{spec.key}.{part}" for part in PARTS]:
            raise ValueError(f"has members {', '.join(member['fname'] for member in members)}")
        lengths, source, target = (np.load(io.BytesIO(sample[part]), allow_pickle=False) for part in PARTS)
        for array, dtype, shape in (
            (lengths, "uint16", (spec.pairs, 2)),
            (source, spec.token_dtype, (spec.source_tokens,)),
            (target, spec.token_dtype, (spec.target_tokens,)),
        ):
            if array.dtype != np.dtype(dtype) or array.shape != shape:
                raise ValueError(f"has an array of {array.dtype} {array.shape}; allowed is {dtype} {shape}")
        if lengths.sum(axis=0, dtype=np.int64).tolist() != [len(source), len(target)]:
            raise ValueError("its lengths do not add up to its tokens")
        for array, size in ((source, spec.source_vocab_size), (target, spec.target_vocab_size)):
            if len(array) and not UNK_ID <= int(array.min()) <= int(array.max()) < size:
                raise ValueError(f"has ids from {array.min()} to {array.max()}; allowed is {UNK_ID} to {size - 1}")
    except Exception as error:  # tarfile and numpy raise anything of broken headers
        raise spec.error(f"cannot be decoded: {' '.join(str(error).split())}") from error
    return Block(source=source, target=target, lengths=lengths)
