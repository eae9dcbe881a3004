"""What is kept of a chunk: a head, and for each source line its hash and candidates, as compressed JSON lines."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from configs import UserError
from configs.components.translation_engine import Candidate, Translated
from configs.process.files import inside
from data_pipeline.preparation.raw.translations import hash_of

FORM = 1
"""Of job.json and of the chunks' files."""
_DIGITS = 6
"""Of log-probabilities, which the last bits of a sum do not change."""
_LEVEL = 6


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Record:
    """A source line, and what became of it."""

    line: int
    """Its number in the corpus, from 1."""
    source: str
    """The hash of its text."""
    candidates: list[Candidate]
    """None of a blank line, and of a hole."""
    hole: str | None = None
    """Why it has no translation."""

    def tree(self, *, with_texts: bool = True) -> dict[str, Any]:
        """As JSON has it."""
        tree: dict[str, Any] = {"line": self.line, "source": self.source}
        if self.hole is not None:
            return {**tree, "hole": self.hole}
        return {**tree, "candidates": [_tree(one) for one in self.candidates]} if with_texts else tree


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class ChunkFile:
    """The content of a chunk's file."""

    head: Mapping[str, Any]
    records: list[Record]


def record_of(number: int, line: str, translated: Translated | None) -> Record:
    """The record of a line.

    Args:
        number: of the line.
        line: its text.
        translated: None of a blank line.
    """
    found = translated or Translated()
    candidates = [dataclasses.replace(one, text=_one_line(one.text)) for one in found.candidates]
    return Record(line=number, source=hash_of(line), candidates=candidates, hole=found.hole)


def write(path: Path, head: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Write a chunk's file; it is there as a whole, on the disk, or not at all."""
    lines = [json.dumps(tree, ensure_ascii=False) for tree in (head, *(record.tree() for record in records))]
    packed = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(f"{chr(10).join(lines)}\n".encode())
    inside.write_bytes(path, packed, sync=True)
    inside.sync_folder(path.parent)


def read(path: Path) -> ChunkFile:
    """Read a chunk's file.

    Raises:
        UserError: it is corrupt, or another version wrote it.
        FileNotFoundError: there is none.
    """
    try:
        text = zstandard.ZstdDecompressor().decompressobj().decompress(inside.read_bytes(path, most=None)).decode()
        head, *trees = map(json.loads, filter(None, text.split("\n")))
        if head.get("form") != FORM:
            raise UserError(
                f"-o: {str(path)!r} is of form {head.get('form')!r}, made by zeromt {head.get('zeromt')}; this version "
                f"makes form {FORM}: translate that chunk again, without this file"
            )
        records = [
            Record(
                line=tree["line"],
                source=tree["source"],
                candidates=[Candidate(**one) for one in tree.get("candidates", [])],
                hole=tree.get("hole"),
            )
            for tree in trees
        ]
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"-o: {str(path)!r} is corrupt; remove it and translate that chunk again") from error
    return ChunkFile(head=head, records=records)


def _tree(candidate: Candidate) -> dict[str, Any]:
    tree: dict[str, Any] = {"text": candidate.text}
    for name in ("log_prob", "score"):
        if (value := getattr(candidate, name)) is not None:
            tree[name] = round(value, _DIGITS)
    return tree


def _one_line(text: str) -> str:
    """A program's answer without line breaks, which would part a line from its source."""
    return " ".join(text.replace("\r", "\n").split("\n")).strip(" ") if "\n" in text or "\r" in text else text
