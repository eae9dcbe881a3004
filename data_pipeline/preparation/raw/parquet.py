"""Parquet, by row groups, and files and streams of Arrow, by record batches (optional package `pyarrow`)."""

import importlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from configs import UserError
from data_pipeline.preparation.raw.table import BATCH_ROWS, BROKEN, Column, columns_of, rows_of, unreadable
from data_pipeline.preparation.raw.unit import Row, RowUnit

PARQUET, ARROW, STREAM = b"PAR1", b"ARRO", b"\xff\xff\xff\xff"
"""The first four bytes of each. A stream is what `datasets` writes into its folders."""
BUFFER_BYTES = 1 << 20
"""Of a column that is read at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetUnit(RowUnit):
    """One file."""

    @property
    def is_seekable(self) -> bool:
        """Whether it is Parquet: a span is then read from the beginning of its row group."""
        try:
            return _first_bytes(self.paths[0]) == PARQUET
        except OSError:  # reading it will raise the error
            return False

    def rows(self, first: int) -> Iterator[Row]:
        """See `RowUnit.rows`."""
        [path] = self.paths
        try:
            pyarrow = importlib.import_module("pyarrow")
        except ImportError as error:
            raise UserError(
                "prepare.train.parquet: pyarrow is missing; install it with `pip install zeromt[parquet]`"
            ) from error
        try:
            columns, begin, batches = self._open(first)
            for batch in batches:
                for offset in range(max(0, first - begin), batch.num_rows, BATCH_ROWS):
                    yield from rows_of(self, columns, batch.slice(offset, BATCH_ROWS), begin + offset + 1)
                begin += batch.num_rows
        except (*BROKEN, pyarrow.ArrowException) as error:
            raise unreadable(path, "pyarrow", error) from error

    def _open(self, first: int) -> tuple[list[Column], int, Iterator[Any]]:
        """Where the fields are, and record batches up to the end: from which row, counted from 0, and they."""
        [path] = self.paths
        beginning = _first_bytes(path)
        if beginning == PARQUET:
            file = importlib.import_module("pyarrow.parquet").ParquetFile(path, buffer_size=BUFFER_BYTES)
            columns = columns_of(self, file.schema_arrow)
            begins = [0, *accumulate(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups))]
            group = bisect_right(begins[:-1], first, lo=1) - 1
            groups = range(group, file.num_row_groups)
            return columns, begins[group], _batches(file, groups, sorted({column.name for column in columns}))
        ipc = importlib.import_module("pyarrow.ipc")
        if beginning == ARROW:
            reader = ipc.open_file(path)
            return columns_of(self, reader.schema), 0, map(reader.get_batch, range(reader.num_record_batches))
        if beginning == STREAM:
            reader = ipc.open_stream(path)
            return columns_of(self, reader.schema), 0, iter(reader)
        raise UserError(f"{path}: is no file of Parquet or Arrow")


def _batches(file: Any, groups: Sequence[int], names: list[str]) -> Iterator[Any]:
    """The record batches of some row groups of a `ParquetFile`.

    Raises:
        ValueError: a group has other rows than the file's metadata say, by which spans are found.
    """
    for group in groups:
        wanted = file.metadata.row_group(group).num_rows
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=names):
            wanted -= batch.num_rows
            yield batch
        if wanted:
            raise ValueError(f"row group {group} has another number of rows than the metadata say")


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(PARQUET))
