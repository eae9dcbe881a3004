"""Tables that pyarrow reads: Parquet, Arrow, and folders of Hugging Face (optional package `pyarrow`)."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from configs import UserError
from configs.components import RawFiles, Reader, Row, component
from configs.corpus import FieldPath
from configs.process.files import inside
from data_pipeline.preparation.lines import listed, texts_of

PARQUET, ARROW = b"PAR1", b"ARRO"
"""The first four bytes of each; others are a stream of Arrow, such as `datasets` writes into its folders."""
BUFFER_BYTES = 1 << 20
"""Of a column that is read at a time."""
BATCH_ROWS, BATCH_BYTES = 1024, 32 << 20
"""Most of a batch: a few bytes of Parquet may repeat a long text."""
EXPANSION = 100
"""By how much a column may be compressed: text is by about 4."""


@component("reader", "table")
class Table(Reader):
    """Files of Parquet or Arrow (IPC, Feather), or folders that Hugging Face's `Dataset.save_to_disk` wrote (optional
    package: zeromt[parquet])."""

    takes_folders: ClassVar[bool] = True
    source_field: FieldPath = "source"
    """Column of the source. `translation.en` is the column of this name or, if there is none, the key `en` within
    `translation`."""
    target_field: FieldPath = "target"
    """Column of the target."""

    @override
    def rows(self, files: RawFiles) -> Iterator[Row]:
        [path] = files.paths
        fields = [str(self.source_field), str(self.target_field), *files.further]
        try:
            pyarrow = importlib.import_module("pyarrow")
        except ImportError as error:
            raise UserError("reader: pyarrow is missing; install it with `pip install zeromt[parquet]`") from error
        name, number = str(path), 0
        try:
            for one in _files_in(path):
                for batch in _batches(one, fields):
                    names = batch.schema.names
                    for values in zip(*batch.columns, strict=True):
                        number += 1
                        tree = {column: value.as_py() for column, value in zip(names, values, strict=True)}
                        yield texts_of(tree, fields, f"{name}: line {number}")
        except (OSError, ValueError, LookupError, TypeError, pyarrow.ArrowException) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(f"{path}: cannot be read by pyarrow: {reason}") from error


def _files_in(path: Path) -> list[Path]:
    """The file, or those of a folder, by the list that `datasets` writes."""
    if not path.is_dir():
        return [path]
    if (path / "dataset_dict.json").exists():
        splits = inside.read_json(path / "dataset_dict.json")["splits"]
        raise UserError(f"{path}: has several splits; allowed is one of its folders: {listed(splits)}")
    return [path / Path(file["filename"]).name for file in inside.read_json(path / "state.json")["_data_files"]]


def _batches(path: Path, fields: list[str]) -> Iterator[Any]:
    """The record batches of a file, with the columns alone that have the fields.

    Raises:
        UserError: there is no column for a field.
        ValueError: it is broken.
    """
    with path.open("rb") as file:
        beginning = file.read(len(PARQUET))
    if beginning == PARQUET:
        parquet = importlib.import_module("pyarrow.parquet")
        file = parquet.ParquetFile(path, buffer_size=BUFFER_BYTES)
        yield from _of_parquet(parquet, path, file, _columns(path, file.schema_arrow.names, fields))
        return
    ipc = importlib.import_module("pyarrow.ipc")
    reader = ipc.open_file(path) if beginning == ARROW else ipc.open_stream(path)
    names = _columns(path, reader.schema.names, fields)
    for batch in map(reader.get_batch, range(reader.num_record_batches)) if beginning == ARROW else reader:
        chosen = batch.select(names)
        chosen.validate(full=True)  # files are mapped as they are: a wrong offset in one would end this process
        yield chosen


def _of_parquet(parquet: Any, path: Path, file: Any, names: list[str]) -> Iterator[Any]:
    """The batches of a file of Parquet, each of few bytes."""
    leaves = [file.schema.column(number).path for number in range(len(file.schema))]
    by_dictionary = parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, read_dictionary=leaves)
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        chunks = [metadata.column(number) for number in range(metadata.num_columns)]
        if any(one.total_uncompressed_size > EXPANSION * one.total_compressed_size + BATCH_BYTES for one in chunks):
            raise ValueError(f"row group {group} expands to over {EXPANSION} times its size; write it uncompressed")
        size = BATCH_ROWS
        for first in by_dictionary.iter_batches(1, row_groups=[group], columns=names):
            size = min(BATCH_ROWS, max(1, BATCH_BYTES // max(1, *map(_longest, first.columns))))
            break
        yield from file.iter_batches(size, row_groups=[group], columns=names)


def _longest(column: Any) -> int:
    """Characters of the longest text that rows of a column may repeat: with its first row all are read."""
    if hasattr(column, "dictionary"):
        return max((len(str(value)) for value in column.dictionary), default=0)
    return max(map(_longest, column.flatten()), default=0) if hasattr(column, "field") else 0


def _columns(path: Path, names: list[str], fields: list[str]) -> list[str]:
    """The columns that have the fields."""
    for field in fields:
        if not any(field == name or field.startswith(f"{name}.") for name in names):
            raise UserError(
                f"{path}: has no column {field}; allowed is one of {listed(names)} (source_field, target_field)"
            )
    return [name for name in names if any(field == name or field.startswith(f"{name}.") for field in fields)]
