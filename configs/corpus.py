"""The files of a corpus, in any format that `zeromt prepare` reads."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from configs.components import Choice, Reader, make
from configs.fields import STRICT, PathText, Positive

FieldPath = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")] | Positive
"""A key, or several keys joined by dots; or the number of a column."""
ScoreName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
"""Name of a score, which its files have too: score-NAME.npy."""

OneLine = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
OfFiles = OneLine | list[OneLine | None] | None
"""Text about all files of a corpus, or about each."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CorpusFiles:
    """Raw parallel text: `source` and `target` (line N of each), or `files` in the format that `reader` names.

    Files whose names end in .gz or .zst are decompressed. Several files are read one after the other.
    """

    __pydantic_config__ = STRICT

    source: list[PathText] = field(default_factory=list)
    """Files with one source sentence per line."""
    target: list[PathText] = field(default_factory=list)
    """Files with the translations, line by line; as many files as in `source`."""
    files: list[PathText] = field(default_factory=list)
    """Files, or folders, that have both sides."""
    reader: Annotated[Reader, Choice("reader", "text")] = field(default_factory=lambda: make("reader", "text"))
    """The format of `files`, with its fields: see docs/data.md."""
    scores: dict[ScoreName, FieldPath] = field(default_factory=dict)
    """Scores of pairs in the corpus: a name, and the field with the number, named like the reader's sides."""
    licence: OfFiles = None
    """Licence of the text, such as CC-BY-4.0, or a list with one for each file. It goes into the index and
    the model card of what is trained on it; the shards do not depend on it.
    """
    attribution: OfFiles = None
    """Who is to be named for the text, like `licence`."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        is_parallel = self.reader.kind == "text"
        if self.files and (self.source or self.target):
            yield "files: given together with source and target; give one or the other"
        elif self.files and is_parallel:
            yield "files: given without their format; name it, such as reader=tsv"
        elif (self.source or self.target) and not is_parallel:
            yield f"reader: {self.reader.kind} with source and target, which are text; name its files in `files`"
        if len(self.source) != len(self.target):
            yield f"source: {len(self.source)} files, target: {len(self.target)} files; both need the same number"
        if self.scores and self.source:
            yield "scores: fields of parallel text, which has none; give TSV, JSON lines or another format with fields"
        for name in ("licence", "attribution"):
            if isinstance(given := getattr(self, name), list) and len(given) != len(self.files or self.target):
                yield f"{name}: {len(given)} texts, one for each file is allowed; give as many, or null"

    def source_of(self, name: Literal["licence", "attribution"], unit: int) -> str | None:
        """What is said of the files of a unit of the corpus, by the unit's number."""
        given: OfFiles = getattr(self, name)
        return given[unit] if isinstance(given, list) else given

    @property
    def units(self) -> list[tuple[str, ...]]:
        """The files that are read together: source and target, or one with both sides."""
        return [*zip(self.source, self.target, strict=True)] if self.source else [(name,) for name in self.files]

    @property
    def is_empty(self) -> bool:
        """Whether it names no file."""
        return not (self.source or self.target or self.files)
