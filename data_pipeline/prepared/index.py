"""The index of a prepared dataset: `index.json`, written last, and the table of its blocks.

A block is the byte range of its three tar members in a shard, verified by its own hash at every read. The table of
blocks is a side file, as two million blocks would be too large for JSON.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError

from configs import UserError
from configs.fields import STRICT, Count
from configs.process.files.inside import opened, parse_json, replacing, write_text

INDEX_FILE = "index.json"
LENGTHS_FILE = "lengths.npy"
BLOCKS_FILE = "blocks.npy"
REPORT_FILE = "report.json"
PLACES_FILE = "places.npy"
VERSION = 4
SCORE_PREFIX = "score-"
"""Of the files of scores, which lie next to the index and are not in it: adding one keeps the fingerprint."""

BLOCK_DTYPE = np.dtype(
    [
        ("shard", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("pairs", "<u4"),
        ("first_pair", "<u8"),
        ("source_tokens", "<u8"),
        ("target_tokens", "<u8"),
        ("longest_source", "<u2"),
        ("longest_target", "<u2"),
        ("sha256", "u1", (32,)),
    ]
)

LINE_BITS = 40
"""Bits of a line's number in the number of a place."""

# One path component: neither absolute, nor '..', nor a URL.
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=255)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
T = TypeVar("T")


class DataError(UserError):
    """A prepared dataset is not what its index says. The message names file and block."""


class ReadError(Exception):
    """Why something could not be read. The caller, who knows its name, catches this and adds the name."""


class MissingError(ReadError):
    """There is no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A file of the dataset."""

    __pydantic_config__ = STRICT

    file: FileName
    bytes: Count
    sha256: Hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry(FileEntry):
    """A tar of blocks."""

    pairs: Count
    blocks: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutEntry:
    """A held-out set: unchanged text that is not trained on."""

    __pydantic_config__ = STRICT

    source: FileEntry
    target: FileEntry
    lines: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerEntry:
    """The tokenizer's files."""

    __pydantic_config__ = STRICT

    files: list[FileEntry]
    fingerprint: Hash
    source_vocab_size: Count
    target_vocab_size: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesEntry(FileEntry):
    """The place in the raw corpus of each pair: (pairs,) of `place_numbers`."""

    units: list[list[str]]
    """Names of each unit's parallel files, or its one file, in corpus order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEntry:
    """Files of the corpus, with their licence and attribution."""

    __pydantic_config__ = STRICT

    files: list[str]
    """Names of the files of a unit."""
    pairs: Count
    """Of the dataset that are from them."""
    licence: str | None = None
    attribution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetIndex:
    """The contents of a prepared dataset, and how it was made."""

    __pydantic_config__ = STRICT

    version: int
    source_language: str
    target_language: str
    pairs: Count
    blocks: Count
    source_tokens: Count
    """Pieces, without EOS."""
    target_tokens: Count
    dropped: dict[str, Count]
    """Rejected pairs, by the name of the filter."""
    shards: list[ShardEntry]
    length_table: FileEntry
    block_table: FileEntry
    tokenizer: TokenizerEntry
    held_out: dict[str, HeldOutEntry]
    """By `valid` and `test`."""
    report: FileEntry
    """The filters' report, with examples; see `data_pipeline.preparation.report`."""
    target_tag: str | None
    """The tag before every source line, including those of held-out sets."""
    recipe: dict[str, Any]
    """All that determines the dataset's bytes: see `data_pipeline.preparation.recipe`."""
    places: PlacesEntry | None = None
    """None if places were not recorded (`prepare.record_places`)."""
    sources: list[SourceEntry] | None = None
    """Licence and attribution of each unit of the corpus, in its order; None if none has any."""

    def to_json(self) -> bytes:
        """The bytes of `index.json`."""
        return (json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    def side_files(self) -> list[FileEntry]:
        """All files except the shards and the index itself."""
        held_out = [entry for pair in self.held_out.values() for entry in (pair.source, pair.target)]
        places = [] if self.places is None else [self.places]
        return [self.length_table, self.block_table, self.report, *places, *self.tokenizer.files, *held_out]


def place_numbers(unit: int, lines: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Encode places in a corpus as one number each.

    Args:
        unit: number of the unit (parallel files) in the corpus, from 0.
        lines: line numbers in the unit, from 1.
    """
    return (lines + (unit << LINE_BITS)).astype(np.uint64)


def block_key(shard: int, row: int) -> str:
    """The webdataset key of a block: its shard and its number in it."""
    return f"{shard:06d}-{row:06d}"


def parse_index(content: bytes, where: Path | str) -> DatasetIndex:
    """Read the bytes of an index.

    Raises:
        UserError: they are not an index, or of another version.
    """
    try:
        tree = parse_json(content)
        version = tree.get("version") if isinstance(tree, dict) else None
        if version != VERSION:
            raise UserError(f"{where}: version {version!r}; allowed is {VERSION}: prepare the dataset again")
    except ValueError as error:
        raise UserError(f"{where}: is not a dataset index: {error}") from error
    return parsed(DatasetIndex, content, where)


def parsed(kind: type[T], content: bytes, where: Path | str) -> T:
    """The value that a JSON file of a dataset holds.

    Raises:
        DataError: it is of another kind.
    """
    try:
        value: T = TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ": ".join(filter(None, (str(where), ".".join(map(str, first["loc"])))))
        raise DataError(f"{place}: {first['input']!r:.200}: {first['msg']}; prepare it anew (--replace)") from error
    return value


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_table(
    path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], parts: Iterable[NDArray[Any]], *, sync: bool = False
) -> None:
    """Write an array in parts, because it may have gigabytes; see `replacing`.

    Args:
        path: of the .npy file.
        dtype, shape: of the whole.
        parts: its rows in order.
        sync: flush it to the disk.
    """
    with replacing(path, sync=sync) as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(part.astype(dtype, copy=False).tobytes())


def describe_file(path: Path) -> FileEntry:
    """The index's entry for a file."""
    return FileEntry(file=path.name, bytes=path.stat().st_size, sha256=hash_file(path))


def check_local(path: str) -> None:
    """Refuse dataset paths that are URLs: webdataset would run `pipe:` ones in a shell.

    Raises:
        UserError: the path starts with a scheme.
    """
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        raise UserError(f"dataset: {path!r}: the scheme {scheme[0]!r} cannot be read; give a folder of this machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry(FileEntry):
    """A score: its table (pairs,) of float32 in the order of the pairs, NaN where a pair has none."""

    pairs: Count
    made_by: dict[str, Any]
    """A field, or a command."""


def entry_file(name: str) -> str:
    """The file that says what a score is."""
    return f"{SCORE_PREFIX}{name}.json"


def write_score(folder: Path, name: str, made_by: Mapping[str, Any], pairs: int, parts: Iterable[NDArray[Any]]) -> None:
    """Add a score to a dataset, as a file of its own.

    Args:
        folder: of the dataset.
        name: of the score.
        made_by: what made it.
        pairs: of the dataset.
        parts: the scores of all pairs, in their order.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / f"{SCORE_PREFIX}{name}.npy"
    write_table(path, np.dtype("<f4"), (pairs,), parts, sync=True)
    tree = {"pairs": pairs, "made_by": made_by, **dataclasses.asdict(describe_file(path))}
    write_text(folder / entry_file(name), json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
