"""What is kept of a chunk: a head, and the candidates of each source line, as compressed JSON lines."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from configs import UserError
from configs.process.files import inside
from trainer.inference.translation.translator import Translation

Record = list[tuple[str, float]] | str
"""Of a line: its translations with their scores, best first, none of a blank line; or why it has none."""
_DIGITS = 6
"""Of scores, which the last bits of a sum do not change."""
_LEVEL = 6


def record_of(found: list[Translation] | str) -> Record:
    """The record of a line, of what became of it."""
    return found if isinstance(found, str) else [(one.text, round(one.score, _DIGITS)) for one in found]


def write(path: Path, head: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Write a chunk's file; it is there as a whole, on the disk, or not at all."""
    text = "".join(f"{json.dumps(tree, ensure_ascii=False)}\n" for tree in (head, *records))
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text.encode())
    inside.write_bytes(path, packed, sync=True)
    inside.sync_folder(path.parent)


def read(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """The head of a chunk's file, and its records.

    Raises:
        UserError: it is corrupt.
        FileNotFoundError: there is none.
    """
    try:
        text = zstandard.ZstdDecompressor().decompressobj().decompress(inside.read_bytes(path, most=None)).decode()
        head, *trees = map(json.loads, text.removesuffix("\n").split("\n"))
        records = [tree if isinstance(tree, str) else [(str(t), float(score)) for t, score in tree] for tree in trees]
        return dict(head), records
    except (zstandard.ZstdError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"-o: {str(path)!r} is corrupt; remove it and translate that chunk again") from error
