"""Decodes a block of pairs from the bytes of its tar members to arrays, checking everything.

webdataset silently drops samples of truncated or corrupt tars; here any difference from the index is an error.
"""

import hashlib
import io
import math
import tarfile
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.errors import DataError
from data_pipeline.tokenizer import UNK_ID

TAR_BLOCK = 512
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
    sha256: bytes
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
    """Decode the bytes of a block.

    Raises:
        DataError: hash, members, types, counts or ids differ from the index.
    """
    if hashlib.sha256(data).digest() != spec.sha256:
        raise spec.error("its hash is not the index's: the shard is corrupt or was replaced")
    parts = _plain_members(data, spec) or _members(data, spec)
    lengths = _array(parts["len.npy"], "len.npy", "uint16", (spec.pairs, 2), spec)
    source = _array(parts["src.npy"], "src.npy", spec.token_dtype, (spec.source_tokens,), spec)
    target = _array(parts["tgt.npy"], "tgt.npy", spec.token_dtype, (spec.target_tokens,), spec)
    if lengths.shape != (spec.pairs, 2):
        raise spec.error(f"len.npy has shape {lengths.shape}; allowed is ({spec.pairs}, 2)")
    sums = lengths.sum(axis=0, dtype=np.int64).tolist()
    for name, array, declared, summed, least, size in (
        ("src.npy", source, spec.source_tokens, sums[0], UNK_ID, spec.source_vocab_size),
        ("tgt.npy", target, spec.target_tokens, sums[1], UNK_ID, spec.target_vocab_size),
    ):
        if not array.shape == (declared,) == (summed,):
            raise spec.error(f"{name} has shape {array.shape}; allowed is ({declared},), and {summed} in len.npy")
        if len(array) and int(array.max()) >= size:
            raise spec.error(f"{name} holds token id {array.max()}; allowed is less than the vocabulary's {size}")
        if len(array) and int(array.min()) < least:
            raise spec.error(f"{name} holds special id {array.min()}; allowed is {least} and above")
    return Block(source=source, target=target, lengths=lengths)


def _plain_members(data: bytes, spec: BlockSpec) -> dict[str, bytes] | None:
    """The three parts of a block exactly as `zeromt prepare` writes it, or None; tarfile takes 20 times as long."""
    parts: dict[str, bytes] = {}
    names = {f"{spec.key}.{part}".encode(): part for part in PARTS}
    place = 0
    while place < len(data):
        header = data[place : place + TAR_BLOCK]
        part = names.pop(header[:100].rstrip(b"\0"), None)
        digits = header[124:136].rstrip(b"\0 ")
        is_plain = header[156:157] == tarfile.REGTYPE and header[257:262] == b"ustar" and not header[345:].strip(b"\0")
        if part is None or not is_plain or not digits.isdigit() or b"8" in digits or b"9" in digits:
            return None
        size = int(digits, 8)
        parts[part] = data[place + TAR_BLOCK : place + TAR_BLOCK + size]
        place += TAR_BLOCK + -(-size // TAR_BLOCK) * TAR_BLOCK
    return parts if place == len(data) and not names else None


def _members(data: bytes, spec: BlockSpec) -> dict[str, bytes]:
    """The three parts of a block, each a plain file named by the block's key."""
    parts: dict[str, bytes] = {}
    names = {f"{spec.key}.{part}": part for part in PARTS}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for member in tar:
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    raise spec.error(f"member {member.name!r} is a link, device or folder; allowed is a plain file")
                if member.name.startswith("/") or ".." in member.name.split("/"):
                    raise spec.error(f"member {member.name!r} points out of the shard; allowed is a plain name")
                if member.name not in names:
                    raise spec.error(f"member {member.name!r}; allowed is {', '.join(names)}")
                if names[member.name] in parts:
                    raise spec.error(f"member {member.name!r} is there twice; allowed is once")
                file = tar.extractfile(member)
                parts[names[member.name]] = file.read() if file else b""
    except (tarfile.TarError, OSError, ValueError) as error:
        raise spec.error(f"is no tar: {error}") from error
    for name, part in names.items():
        if part not in parts:
            raise spec.error(f"member {name!r} is missing")
    return parts


def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """What `np.save` writes before an array of little-endian integers."""
    text = f"{{'descr': '{np.dtype(dtype).str}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\x01\x00" + (-(-(len(text) + 11) // 64) * 64 - 10).to_bytes(2, "little") + text.encode()


def _array(
    content: bytes, name: str, dtype: str, shape: tuple[int, ...], spec: BlockSpec
) -> NDArray[np.unsignedinteger]:
    header = _npy_header(dtype, shape)
    start = 10 + int.from_bytes(header[8:10], "little")
    if content.startswith(header) and len(content) == start + math.prod(shape) * np.dtype(dtype).itemsize:
        view: NDArray[np.unsignedinteger] = np.frombuffer(content, dtype, offset=start).reshape(shape)
        return view
    try:  # numpy parses headers as Python code, which takes longer than the rest of a small block
        array = np.load(io.BytesIO(content), allow_pickle=False)
    except Exception as error:  # numpy parses a header as Python literals, so a broken one can raise anything
        raise spec.error(f"{name} is no array without pickle: {' '.join(str(error).split())}") from error
    if not isinstance(array, np.ndarray) or array.dtype != np.dtype(dtype):
        raise spec.error(f"{name} has type {getattr(array, 'dtype', type(array).__name__)}; allowed is {dtype}")
    return array
