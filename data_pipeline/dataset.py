"""A prepared dataset, opened and held against its index."""

import hashlib
import stat
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from data_pipeline.blocks import Block, BlockSpec, decode_block
from data_pipeline.errors import DataError
from data_pipeline.index import (
    BLOCK_DTYPE,
    INDEX_FILE,
    DatasetIndex,
    FileEntry,
    block_key,
    check_local,
    hash_file,
    parse_index,
)
from data_pipeline.tokenizer import Tokenizer, fingerprint_of

__all__ = ["DataError", "Dataset"]


class Dataset:
    """A folder that `zeromt prepare` wrote. Nothing in it is changed after it was opened."""

    def __init__(self, folder: Path, index: DatasetIndex, fingerprint: str) -> None:
        """Use `load`, which verifies."""
        self.folder = folder
        self.index = index
        self.fingerprint = fingerprint
        """SHA-256 of the index's bytes, in hexadecimal."""
        self.lengths: NDArray[np.uint16] = _table(folder, index.length_table)
        """(pairs, 2), on the disk: raw pieces of source and target. The row is the pair's id."""
        self.blocks: NDArray[np.void] = _table(folder, index.block_table)
        """The table of blocks, of `BLOCK_DTYPE`, on the disk."""
        _check_tables(folder, index, self.lengths, self.blocks)
        self._first_blocks = np.concatenate([[0], np.cumsum([s.blocks for s in index.shards], dtype=np.int64)])

    @classmethod
    def load(cls, folder: Path | str) -> "Dataset":
        """Open a prepared folder, verifying all but the shards' contents (blocks are verified when read).

        Raises:
            UserError: the folder is no dataset of this version.
            DataError: a file is missing, extra, a link, or not of the size or hash in the index.
        """
        check_local(str(folder))
        folder = Path(folder)
        path = folder / INDEX_FILE
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            raise UserError(
                f"dataset: {folder} holds no {INDEX_FILE}; allowed is a folder made by zeromt prepare"
            ) from error
        except OSError as error:
            raise UserError(f"dataset: {path}: cannot be read: {error.strerror}") from error
        index = parse_index(content, path)
        problems = file_problems(folder, index)
        if problems:
            more = f" (and {len(problems) - 1} more; see zeromt inspect)" if len(problems) > 1 else ""
            raise DataError(problems[0] + more)
        return cls(folder, index, hashlib.sha256(content).hexdigest())

    @property
    def num_pairs(self) -> int:
        """Training pairs."""
        return self.index.pairs

    @property
    def source_language(self) -> str:
        """Code of the source language."""
        return self.index.source_language

    @property
    def target_language(self) -> str:
        """Code of the target language."""
        return self.index.target_language

    @property
    def tokenizer_fingerprint(self) -> str:
        """`Tokenizer.fingerprint`, without loading it."""
        return self.index.tokenizer.fingerprint

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The dataset's tokenizer.

        Raises:
            DataError: it has another vocabulary than the index says.
        """
        entry = self.index.tokenizer
        tokenizer = Tokenizer({f.file: (self.folder / f.file).read_bytes() for f in entry.files})
        sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
        if tokenizer.fingerprint != entry.fingerprint or sizes != (
            entry.source_vocab_size,
            entry.target_vocab_size,
        ):
            raise DataError(f"{self.folder}: the tokenizer is not the index's: {sizes[0]} and {sizes[1]} pieces")
        return tokenizer

    def held_out(self, split: str) -> tuple[list[str], list[str]]:
        """The raw lines of a held-out set, source and target.

        Args:
            split: valid or test.

        Raises:
            UserError: the dataset has no such set.
        """
        entry = {str(k): v for k, v in self.index.held_out.items()}.get(split)
        if entry is None:
            have = ", ".join(self.index.held_out) or "none"
            raise UserError(f"dataset: {self.folder} has no {split} set (it has: {have}); set prepare.{split}")
        source, target = (self._held_out_lines(file, entry.lines) for file in (entry.source, entry.target))
        return source, target

    def _held_out_lines(self, entry: FileEntry, count: int) -> list[str]:
        lines = (self.folder / entry.file).read_bytes().decode("utf-8").split("\n")[:-1]
        if len(lines) != count:
            raise DataError(f"{self.folder / entry.file}: {len(lines)} lines; allowed is the index's {count}")
        return lines

    def read_block(self, number: int) -> Block:
        """Read a block at its offset, and verify it.

        Raises:
            DataError: its bytes are not those of the index, or do not decode as declared. It names shard and
                block.
        """
        row = self.blocks[number]
        spec = self._spec(number)
        try:
            with Path(spec.shard).open("rb", buffering=0) as file:
                file.seek(int(row["offset"]))
                data = file.read(int(row["bytes"]))
        except OSError as error:
            raise spec.error(f"cannot be read: {error.strerror}") from error
        if len(data) != int(row["bytes"]):
            raise spec.error(f"{len(data)} bytes are left of {row['bytes']}: the shard is cut short")
        return self._matching(decode_block(data, spec), number)

    def _spec(self, number: int) -> BlockSpec:
        row = self.blocks[number]
        shard = int(row["shard"])
        return BlockSpec(
            shard=str(self.folder / self.index.shards[shard].file),
            key=block_key(shard, number - int(self._first_blocks[shard])),
            pairs=int(row["pairs"]),
            source_tokens=int(row["source_tokens"]),
            target_tokens=int(row["target_tokens"]),
            sha256=row["sha256"].tobytes(),
            token_dtype=self.index.token_dtype,
            source_vocab_size=self.index.tokenizer.source_vocab_size,
            target_vocab_size=self.index.tokenizer.target_vocab_size,
        )

    def _matching(self, block: Block, number: int) -> Block:
        """The block, if its lengths are those that batches are planned with."""
        first = int(self.blocks[number]["first_pair"])
        if not np.array_equal(block.lengths, self.lengths[first : first + len(block.lengths)]):
            raise self._spec(number).error("its lengths are not those of the length table")
        return block

    def verify(self) -> list[str]:
        """Read every byte, and return what is wrong, naming files. Nothing wrong is an empty list."""
        problems = []
        for number, shard in enumerate(self.index.shards):
            if hash_file(self.folder / shard.file) != shard.sha256:
                problems.append(f"{self.folder / shard.file}: its hash is not the index's")
            first, last = np.searchsorted(self.blocks["shard"], [number, number + 1]).tolist()
            for block in range(first, last):
                try:
                    self.read_block(block)
                except DataError as error:
                    problems.append(str(error))
        try:
            _ = self.tokenizer
            for split in self.index.held_out:
                self.held_out(split)
        except UserError as error:
            problems.append(str(error))
        return problems


def file_problems(folder: Path, index: DatasetIndex) -> list[str]:
    """What is wrong with a dataset's files, one line each: sizes of all, hashes of all but the shards."""
    problems = []
    for entry in (*index.shards, *index.side_files()):
        path = folder / entry.file
        try:
            status = path.lstat()
        except OSError:
            problems.append(f"{path}: is in the index and missing from the folder")
            continue
        if not stat.S_ISREG(status.st_mode):
            problems.append(f"{path}: is a link, folder or device; allowed is a plain file")
        elif status.st_size != entry.bytes:
            problems.append(f"{path}: has {status.st_size} bytes; allowed is the index's {entry.bytes}")
    if problems:
        return problems
    listed = {shard.file for shard in index.shards}
    for path in sorted((*folder.glob("*.tar"), *folder.glob("*.tar.*"))):
        if path.name not in listed:
            problems.append(f"{path}: is not in the index; remove it or prepare the dataset again")
    for entry in index.side_files():
        if hash_file(folder / entry.file) != entry.sha256:
            problems.append(f"{folder / entry.file}: its hash is not the index's")
    files = {entry.file: entry.sha256 for entry in index.tokenizer.files}
    if fingerprint_of(files) != index.tokenizer.fingerprint:
        problems.append(f"{folder / INDEX_FILE}: the tokenizer's fingerprint is not that of its files")
    return problems


def _table(folder: Path, entry: FileEntry) -> NDArray[Any]:
    try:
        table: NDArray[Any] = np.load(folder / entry.file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / entry.file}: is no table: {' '.join(str(error).split())}") from error
    return table


def _check_tables(folder: Path, index: DatasetIndex, lengths: NDArray[np.uint16], blocks: NDArray[np.void]) -> None:
    """Raise unless the tables and the index say the same."""

    def must(holds: bool, what: str) -> None:
        if not holds:
            raise DataError(f"{folder}: {what}")

    must(
        lengths.dtype == np.dtype("<u2") and lengths.shape == (index.pairs, 2),
        "length table and index disagree",
    )
    must(blocks.dtype == BLOCK_DTYPE and blocks.shape == (index.blocks,), "block table and index disagree")
    must(index.blocks > 0 and index.pairs > 0, "holds no pairs; allowed is at least one")
    must(int(blocks["shard"].max()) < len(index.shards), "block table names a shard that the index does not")
    must(bool((np.diff(blocks["shard"].astype(np.int64)) >= 0).all()), "block table is out of order")
    pairs = blocks["pairs"].astype(np.int64)
    firsts = np.concatenate([[0], np.cumsum(pairs)])
    must(
        bool((blocks["first_pair"] == firsts[:-1]).all()) and int(firsts[-1]) == index.pairs,
        "pairs do not add up",
    )
    must(bool((pairs > 0).all()), "block table holds an empty block")
    sizes = np.array([shard.bytes for shard in index.shards], dtype=np.uint64)
    ends = blocks["offset"] + blocks["bytes"]
    must(bool((ends <= sizes[blocks["shard"]]).all()), "block table points beyond a shard's end")
    for name in ("source_tokens", "target_tokens"):
        total = int(blocks[name].sum())
        must(total == getattr(index, name), f"{name} do not add up")
    counts = np.bincount(blocks["shard"], minlength=len(index.shards))
    must(counts.tolist() == [s.blocks for s in index.shards], "blocks of the shards do not add up")
    for name in ("pairs", "source_tokens", "target_tokens"):
        by_shard = np.bincount(blocks["shard"], weights=blocks[name], minlength=len(index.shards))
        must(
            by_shard.tolist() == [getattr(s, name) for s in index.shards],
            f"{name} of the shards do not add up",
        )
