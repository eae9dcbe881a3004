"""The files of a corpus, in any format that `zeromt prepare` reads."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from configs.fields import STRICT, PathText, Positive

FieldPath = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")] | Positive
"""A key, or several keys joined by dots; or the number of a column."""
FORMS = ("tsv", "jsonl", "huggingface", "tmx", "parquet")
"""The formats of raw text that have both sides in one file or folder: fields of `CorpusFiles`."""
ScoreName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=64)]
"""Name of a score, which its files have too: score-NAME.npy."""

OneLine = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
OfFiles = OneLine | list[OneLine | None] | None
"""Text about all files of a corpus, or about each."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CorpusFiles:
    """Raw parallel text in one format: `source` and `target` (line N beside line N), or that of one of the next fields.

    Files whose names end in .gz, .zst, .xz or .bz2 are decompressed. Several files are read one after the other.
    """

    __pydantic_config__ = STRICT

    source: list[PathText] = field(default_factory=list)
    """Files with one source sentence per line."""
    target: list[PathText] = field(default_factory=list)
    """Files with the translations, line by line; as many files as in `source`."""
    tsv: list[PathText] = field(default_factory=list)
    """Files with two columns, source and target, separated by a tab; or with more, of which the fields name two."""
    jsonl: list[PathText] = field(default_factory=list)
    """Files with one JSON object per line."""
    huggingface: list[PathText] = field(default_factory=list)
    """Folders that Hugging Face's `Dataset.save_to_disk` wrote (optional package: zeromt[huggingface])."""
    tmx: list[PathText] = field(default_factory=list)
    """TMX files: the units (`tu`) that have both languages, whichever of their codes a file uses."""
    parquet: list[PathText] = field(default_factory=list)
    """Files of Parquet, or of Arrow (IPC, Feather) (optional package: zeromt[parquet])."""
    source_field: FieldPath = "source"
    """Key of the source in a JSON object or row. `translation.en` is the key of this name or, if there is none, the key
    `en` within `translation`. Of TSV the number of a column, from 1, or its name in the first line. Of TMX
    a code of the language in the file, by default `prepare.source_language`.
    """
    target_field: FieldPath = "target"
    """Key of the target, like `source_field`."""
    header: bool = False
    """The first line of each TSV file names its columns, also if the fields are numbers or at their defaults."""
    inline_markup: Literal["drop", "keep"] = "drop"
    """Of TMX: drop what segments have of other programs' codes (`bpt`, `ept`, `it`, `ph`), or keep it as tags."""
    scores: dict[ScoreName, FieldPath] = field(default_factory=dict)
    """Scores of pairs that stand in the corpus: a name, and the field that has the number, like `source_field`."""
    licence: OfFiles = None
    """Licence of the text, such as CC-BY-4.0, or a list with one for each file. It goes into the index and
    the model card of what is trained on it; the shards do not depend on it.
    """
    attribution: OfFiles = None
    """Who is to be named for the text, like `licence`."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        forms = [name for name in FORMS if getattr(self, name)]
        if self.source or self.target:
            forms.insert(0, "source and target")
        if len(forms) > 1:
            yield f"{', '.join(forms)}: given together; use one format"
        yield from self._problems_of_sources(forms)
        if len(self.source) != len(self.target):
            yield f"source: {len(self.source)} files, target: {len(self.target)} files; both need the same number"
        if self.header and not self.tsv:
            yield "header: true without tsv; remove it"
        if self.inline_markup == "keep" and not self.tmx:
            yield "inline_markup: keep without tmx; remove it"
        if self.scores and self.source:
            yield "scores: fields of parallel text, which has none; give TSV, JSON lines or another format with fields"

    def _problems_of_sources(self, forms: list[str]) -> Iterator[str]:
        """Lists about files that are not one for each."""
        number = len((getattr(self, forms[0].partition(" ")[0]) if forms else ()) or self.target)
        for name in ("licence", "attribution"):
            if isinstance(given := getattr(self, name), list) and len(given) != number:
                yield f"{name}: {len(given)} texts, the corpus has {number} files; give one for each, or null"

    def source_of(self, name: Literal["licence", "attribution"], unit: int) -> str | None:
        """What is said of the files of a unit of the corpus, by the unit's number."""
        given: OfFiles = getattr(self, name)
        return given[unit] if isinstance(given, list) else given

    @property
    def form(self) -> str | None:
        """The format of the files: `text`, or the field that names them; None if it names no file."""
        return "text" if self.source or self.target else next((name for name in FORMS if getattr(self, name)), None)

    @property
    def is_empty(self) -> bool:
        """Whether it names no file."""
        return self.form is None
