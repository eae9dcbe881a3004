"""What a line of `zeromt translate --merge` was made of: its side file, and the chunks with all candidates."""

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs import UserError
from data_pipeline.preparation.raw.lines import LineReader, side_file
from data_pipeline.preparation.raw.monolingual import reader_of
from zeromt.tracing.links import Link, found
from zeromt.translating.corpus import records
from zeromt.translating.corpus.folder import ORIGIN, chunk_file, identity_of, read_job, table_of
from zeromt.translating.corpus.ranking import kept_scores
from zeromt.translating.corpus.source import Corpus

_RECORD = '{"line":'
"""How a record in a side file begins; a chunk's head does not."""
_SHOWN = ("engine", "zeromt", "build", "identity")
"""What is shown of a chunk's head."""


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Merged:
    """A line of a merged file, as the side file beside it has it."""

    file: Path
    line: int
    """In the file, from 1."""
    head: Mapping[str, Any]
    """Of its chunk."""
    record: Mapping[str, Any]
    """With the number of the source's line, from 1, and its hash."""

    @classmethod
    def find(cls, file: Path, line: int) -> "Merged":
        """A line, by its number.

        Raises:
            UserError: there is none, or the side file is missing or corrupt.
        """
        texts = next(itertools.islice(records_of(file), line - 1, None), None)
        if texts is None:
            raise UserError(f"{side_file(file)}: has no line {line}; give the number of a line of {file}")
        try:
            head, record = map(json.loads, texts)
            for tree, name in ((head, "chunk"), (head, "first"), (record, "line")):
                int(tree[name])
            return cls(file=file, line=line, head=head, record={"source": "", **record})
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{side_file(file)}: is corrupt; merge again") from error

    def link(self, text: str, folder: Path | None) -> Link:
        """Itself, with the candidates that the folder has."""
        shown = {name: self.head[name] for name in _SHOWN if name in self.head}
        facts = {"text": text, "line": self.line, "of_line": self.record["line"], **shown}
        link = Link(what="translation", where=f"{self.file}: line {self.line}", facts=facts)
        if "hole" in self.record:
            link.facts["hole"] = self.record["hole"]
        if folder is None:
            link.problems.append("its candidates: the folder of `zeromt translate --part` is not there; --translated?")
            return link
        chunk = chunk_file(folder, int(self.head["chunk"]))
        if not link.are_missing([chunk]):
            with link.noting():
                link.facts["candidates"] = self._candidates(folder, chunk, text)
        return link

    def _candidates(self, folder: Path, chunk: Path, text: str) -> list[dict[str, Any]]:
        """All candidates, with their scores and which was chosen.

        Raises:
            UserError: the chunk is corrupt, or of another line.
        """
        row = int(self.record["line"]) - int(self.head["first"])
        content = records.read(chunk).records
        if row >= len(content) or content[row].source != self.record["source"]:
            raise UserError(f"{chunk}: has another line than was merged; merge again")
        trees: list[dict[str, Any]] = content[row].tree().get("candidates", [])
        for name, scores in kept_scores(folder, chunk):
            for tree, score in zip(trees, scores[row], strict=False):
                tree[name] = score
        chosen = next((number for number, tree in enumerate(trees) if tree["text"] == text), None)
        if trees and chosen is None:
            raise UserError(f"{chunk}: the translation is not among its candidates; merge again")
        return [{"chosen": number == chosen, **tree} for number, tree in enumerate(trees)]

    def original(self, originals: Sequence[Path], folder: Path | None) -> tuple[Path, int]:
        """The file, and its line from 1, or the pair's number and 1, that was translated.

        Raises:
            UserError: a file that must be counted through is gone.
        """
        line = int(self.record["line"])
        if folder is not None and table_of(folder).exists():
            corpus = Corpus(originals, table_of(folder))
            begins = [corpus.begin_of(number) for number in range(len(originals))]
            number = sum(begin <= line for begin in begins) - 1
            return originals[number], line - begins[number] + 1
        for path in originals[:-1]:
            if not path.exists():
                raise UserError(f"not found any more: {path}")
            if line <= (there := sum(1 for _ in reader_of(path).lines())):
                return path, line
            line -= there
        return originals[-1], line


def records_of(file: Path) -> Iterator[tuple[str, str]]:
    """Of each line of a merged file the head of its chunk, and its record.

    Raises:
        UserError: there is no side file, or it cannot be read.
    """
    head = "{}"
    for text in LineReader(side_file(file)).lines():
        if text.startswith(_RECORD):
            yield head, text
        else:
            head = text


def folder_of(merged: Merged, given: Sequence[Path]) -> Path | None:
    """The folder whose parts were merged, among that of the file and those given."""
    for root in (merged.file.parent, *given):
        with contextlib.suppress(UserError):
            if identity_of(read_job(root)) == merged.head.get("identity"):
                return root
    return None


def originals_of(folder: Path) -> list[Path]:
    """The files that were translated in a folder, where they are now.

    Raises:
        UserError: they were not recorded.
    """
    try:
        origin = read_job(folder)[ORIGIN]
        return [found(name, origin["folder"]) for name in origin["files"]]
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder}: where its input was is not recorded") from error


def line_of(path: Path, number: int) -> str:
    """A line of a text file, by its number from 1.

    Raises:
        UserError: it is missing, or ends before.
    """
    text = next(itertools.islice(reader_of(path).lines(), number - 1, None), None)
    if text is None:
        raise UserError(f"{path}: ends before line {number}")
    return text.removeprefix("\ufeff") if number == 1 else text
