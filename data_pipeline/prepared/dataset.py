"""A prepared dataset, opened and checked against its index; and its blocks, decoded by webdataset's own functions.

webdataset alone silently drops samples of truncated or corrupt tars, and its decoders run pickles. So the bytes are
compared with their hash first, and arrays are the only members.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection, UserError
from configs.process.files.inside import read_bytes
from data_pipeline.prepared.index import (
    BLOCK_DTYPE,
    INDEX_FILE,
    LINE_BITS,
    SCORE_PREFIX,
    DataError,
    DatasetIndex,
    FileEntry,
    MissingError,
    ReadError,
    ScoreEntry,
    ShardEntry,
    block_key,
    entry_file,
    parse_index,
    parsed,
)
from data_pipeline.prepared.storage import Storage, open_storage
from data_pipeline.tokenizer import Tokenizer, fingerprint_of

MAX_HASHED_LENGTHS = 1 << 20
"""Maximum bytes of a table that every rank hashes when it opens a dataset: lengths of 262,144 pairs."""
SAMPLED_RUNS = 16


PARTS = ("len.npy", "src.npy", "tgt.npy")
"""Members of a block."""

Pieces = NDArray[np.unsignedinteger]


class Block(NamedTuple):
    """Pairs of raw pieces, without special ids."""

    lengths: NDArray[np.uint16]
    """(pairs, 2)."""
    source: Pieces
    """Source pieces of all pairs, one after the other."""
    target: Pieces


def decode_block(data: bytes, key: str) -> Block:
    """Decode the bytes of a block, whose hash is the index's.

    Args:
        data: its tar members.
        key: the webdataset key of its sample.

    Raises:
        ReadError: it has other members, or they are not arrays.
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


class Dataset:
    """A dataset written by `zeromt prepare`. Immutable once it is opened."""

    def __init__(self, storage: Storage, index: DatasetIndex, fingerprint: str) -> None:
        """Use `load`, which verifies."""
        self.location = storage.location
        """The folder or URL from which it was loaded, for messages."""
        self.index = index
        self.fingerprint = fingerprint
        """SHA-256 of the index's bytes, in hexadecimal."""
        self._storage = storage
        self.lengths: NDArray[np.uint16] = self._table(index.length_table, "<u2", (index.pairs, 2))
        """(pairs, 2): raw pieces of source and target. The row is the pair's id."""
        self.blocks: NDArray[np.void] = np.array(self._table(index.block_table, BLOCK_DTYPE, (index.blocks,)))
        """The table of blocks, of `BLOCK_DTYPE`, in memory: what is read later is held against these hashes."""
        if not index.pairs:
            raise DataError(f"{self.location}: holds no pairs; give at least one")

    def _table(self, entry: FileEntry, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
        """A table that has been hashed where it is to be; a large one stays on the disk."""
        is_small = entry.bytes <= MAX_HASHED_LENGTHS
        path = self._storage.fetch(entry, hashed=False)
        try:
            table: NDArray[Any] = np.load(path, mmap_mode=None if is_small else "r", allow_pickle=False)
            if table.dtype != np.dtype(dtype) or table.shape != shape:
                raise ValueError(f"it is an array of {table.dtype} {table.shape}; allowed is {dtype} {shape}")
        except (OSError, ValueError, EOFError, MemoryError) as error:  # a forged header may ask for any size
            raise DataError(f"{self._storage.path(entry.file)}: {' '.join(str(error).split())}") from error
        return table

    @classmethod
    def load(cls, folder_or_url: Path | str, stream: StreamSection | None = None) -> "Dataset":
        """Open a prepared dataset, verifying everything that is not verified when it is read.

        Verified when read are the shards' blocks, each by its hash, and a table of lengths of more than
        `MAX_HASHED_LENGTHS` bytes: hashing one of 2 billion pairs would read 8 GB on every rank, and a block that is
        read must have the table's lengths. `verify` hashes it. The side files of a remote dataset are downloaded to
        this machine's cache.

        Args:
            folder_or_url: a folder, or a URL as text.
            stream: cache, retries and time-outs for a remote dataset.

        Raises:
            UserError: there is no dataset of this version, or the URL cannot be read.
            DataError: a file is missing, or differs from the index in size or hash.
        """
        storage, index, fingerprint = open_index(folder_or_url, stream)
        if (problem := next(check_files(storage, index), None)) is not None:
            raise DataError(problem)
        return cls(storage, index, fingerprint)

    @property
    def folder(self) -> Path:
        """The folder of a local dataset."""
        return Path(self.location)

    @property
    def name(self) -> str:
        """The last part of the folder or URL."""
        return self.location.rstrip("/").rpartition("/")[2]

    @property
    def num_pairs(self) -> int:
        """Training pairs."""
        return self.index.pairs

    @property
    def tag_both_sides(self) -> bool:
        """Whether each side begins with its language's tag."""
        return bool(self.index.recipe.get("settings", {}).get("tag_both_sides", False))

    @property
    def tokenizer_fingerprint(self) -> str:
        """`Tokenizer.fingerprint`, without loading it."""
        return self.index.tokenizer.fingerprint

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The dataset's tokenizer.

        Raises:
            DataError: its vocabulary differs from the index.
        """
        entry = self.index.tokenizer
        tokenizer = Tokenizer({f.file: self.read_file(f) for f in entry.files})
        sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
        if (tokenizer.fingerprint, *sizes) != (entry.fingerprint, entry.source_vocab_size, entry.target_vocab_size):
            raise DataError(f"{self.location}: the tokenizer is not the index's: {sizes[0]} and {sizes[1]} pieces")
        return tokenizer

    def read_file(self, entry: FileEntry) -> bytes:
        """The content of a side file.

        Raises:
            DataError: it cannot be read, or differs from the index.
        """
        return read_bytes(self._storage.fetch(entry))

    def held_out(self, split: str) -> tuple[list[str], list[str]]:
        """The raw lines of a held-out set, source and target.

        Args:
            split: valid or test.

        Raises:
            UserError: the dataset has no such set.
            DataError: it is not the index's.
        """
        entry = self.index.held_out.get(split)
        if entry is None:
            have = ", ".join(self.index.held_out) or "none"
            raise UserError(f"dataset: {self.location} has no {split} set (it has: {have}); set prepare.{split}")
        source, target = (
            self.read_file(file).decode("utf-8", "replace").split("\n")[:-1] for file in (entry.source, entry.target)
        )
        if not len(source) == len(target) == entry.lines:
            raise DataError(
                f"{self.location}: {split} has not the index's {entry.lines} lines; prepare it anew (--replace)"
            )
        return source, target

    def place(self, pair: int) -> str | None:
        """The raw file and line of a pair; None if it was not recorded.

        Of parallel files the first is named.
        """
        entry = self.index.places
        if entry is None:
            return None
        unit, line = divmod(int(self._places[pair]), 1 << LINE_BITS)
        return f"{entry.units[unit][0]}:{line}"

    @cached_property
    def _places(self) -> NDArray[np.uint64]:
        assert self.index.places is not None
        return self._table(self.index.places, "<u8", (self.index.pairs,))

    def scores(self) -> list[str]:
        """Names of its pairs' scores. Those of a dataset at a URL must be known."""
        names = [name.removeprefix(SCORE_PREFIX) for name in self._storage.names() if name.startswith(SCORE_PREFIX)]
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def score_entry(self, name: str) -> ScoreEntry:
        """What a score is.

        Raises:
            UserError: there is none of this name.
            DataError: its file is invalid, or cannot be read.
        """
        where = self._storage.path(entry_file(name))
        try:
            entry = parsed(ScoreEntry, self._storage.read(entry_file(name)), where)
        except MissingError as error:
            have = f" (it has: {', '.join(self.scores()) or 'none'})" if self._storage.names() else ""
            raise UserError(f"{self.location} has no score {name!r}{have}; set prepare.scores") from error
        except ReadError as error:
            raise DataError(f"{where}: {error}") from error
        if entry.pairs != self.num_pairs:
            raise DataError(f"{where}: is of {entry.pairs:,} pairs; allowed is the dataset's {self.num_pairs:,}")
        return entry

    def longest(self, side: Literal["source", "target"]) -> int:
        """Tokens of the longest row, EOS included."""
        return int(self.blocks[f"longest_{side}"].max()) + 1

    def sampled_lengths(self, size: int) -> NDArray[np.uint16]:
        """(pairs, 2): lengths of `size` pairs or some more, in contiguous runs spread evenly, or of all if there are
        fewer."""
        size = min(size, self.num_pairs)
        run = -(-size // SAMPLED_RUNS)
        starts = np.linspace(0, self.num_pairs - run, -(-size // run), dtype=np.int64)
        return np.concatenate([self.lengths[start : start + run] for start in starts])

    def score(self, name: str) -> NDArray[np.float32]:
        """(pairs,): a score of each pair, NaN where it has none; the row is the pair's id.

        Raises:
            UserError: there is none of this name.
            DataError: it is invalid, or not that of its hash.
        """
        entry = self.score_entry(name)
        self._storage.fetch(entry)
        return self._table(entry, "<f4", (self.num_pairs,))

    def read_block(self, number: int) -> Block:
        """Read and verify a block, of a remote dataset through the cache. Thread-safe.

        Raises:
            DataError: its bytes differ from the index, do not decode, or cannot be read. It names shard and block.
        """
        row = self.blocks[number]
        shard, first = int(row["shard"]), int(row["first_pair"])
        entry = self.index.shards[shard]
        key = block_key(shard, number - int(np.searchsorted(self.blocks["shard"], shard)))
        try:
            data = self._storage.read_block(entry, int(row["offset"]), int(row["bytes"]), row["sha256"].tobytes())
            block = decode_block(data, key)
            if not np.array_equal(block.lengths, self.lengths[first : first + int(row["pairs"])]):
                raise ReadError("its lengths are not those of the length table")
        except ReadError as error:
            raise DataError(f"{self._storage.path(entry.file)}: block {key}: {error}") from error
        return block

    def verify(self) -> list[str]:
        """Read every byte, and return a list of problems that names files."""
        is_remote = "://" in self.location  # whose shards are read by block alone
        entries = self.index.side_files() if is_remote else [*self.index.shards, *self.index.side_files()]
        checks: list[Callable[[], object]] = [partial(self._storage.fetch, entry) for entry in entries]
        checks += [partial(self.read_block, number) for number in range(len(self.blocks))]
        checks += [lambda: self.tokenizer, *(partial(self.held_out, split) for split in self.index.held_out)]
        checks += [partial(self.score, name) for name in self.scores()]
        problems = []
        for check in checks:
            try:
                check()
            except UserError as error:
                problems.append(str(error))
        return problems


def open_index(folder_or_url: Path | str, stream: StreamSection | None = None) -> tuple[Storage, DatasetIndex, str]:
    """The storage of a dataset, its index, and the fingerprint.

    Raises:
        UserError: there is no index of this version, or the URL cannot be read.
    """
    storage = open_storage(folder_or_url, stream)
    try:
        content = storage.read(INDEX_FILE)
    except MissingError as error:
        raise UserError(
            f"dataset: {storage.location} holds no {INDEX_FILE}; give a folder or URL that zeromt prepare made"
        ) from error
    except ReadError as error:
        raise UserError(f"dataset: {storage.path(INDEX_FILE)}: {error}") from error
    return storage, parse_index(content, storage.path(INDEX_FILE)), hashlib.sha256(content).hexdigest()


def check_files(storage: Storage, index: DatasetIndex) -> Iterator[str]:
    """The problems of a dataset's files. Of a remote dataset side files are downloaded, and shards not looked at."""
    is_remote = "://" in storage.location
    for entry in index.side_files() if is_remote else (*index.shards, *index.side_files()):
        is_read_later = entry is index.length_table and entry.bytes > MAX_HASHED_LENGTHS
        is_hashed = not (isinstance(entry, ShardEntry) or is_read_later)
        try:
            storage.fetch(entry, hashed=is_hashed)
        except DataError as error:
            yield str(error)
    if fingerprint_of({entry.file: entry.sha256 for entry in index.tokenizer.files}) != index.tokenizer.fingerprint:
        yield f"{storage.path(INDEX_FILE)}: the tokenizer's fingerprint is not that of its files"
