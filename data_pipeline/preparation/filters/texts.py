"""Filters of the text alone: normalisation, control characters, length, equal sides, held-out text, languages."""

import functools
import unicodedata
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import ChangingFilter, Corpus, DroppingFilter, Find, component
from configs.data import Script
from configs.fields import PathText, Positive


@component("filter", "normalization")
class Normalization(ChangingFilter):
    """Unicode normalisation of both sides (Unicode Standard Annex 15)."""

    form: Literal["nfc", "nfkc"]
    """Unicode's normal form."""

    @override
    def change(self, sources: list[str], targets: list[str]) -> tuple[list[str], list[str]]:
        name: Literal["NFC", "NFKC"] = "NFC" if self.form == "nfc" else "NFKC"
        normalize = functools.partial(unicodedata.normalize, name)
        return list(map(normalize, sources)), list(map(normalize, targets))


@component("filter", "remove_control_characters")
class RemoveControlCharacters(ChangingFilter):
    """Removes control and invisible characters; those that are white space become a space."""

    @override
    def report_name(self) -> str:
        return "control characters"

    @override
    def change(self, sources: list[str], targets: list[str]) -> tuple[list[str], list[str]]:
        return without_controls(sources), without_controls(targets)


@component("filter", "max_characters")
class MaxCharacters(DroppingFilter):
    """Drops pairs with too many characters on either side."""

    limit: Positive
    """Maximum number of characters of a side."""

    @override
    def report_name(self) -> str:
        return "too many characters"

    @override
    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        pairs = zip(sources, targets, strict=True)
        return [row for row, (s, t) in enumerate(pairs) if len(s) > self.limit or len(t) > self.limit]


@component("filter", "empty")
class Empty(DroppingFilter):
    """Drops pairs with a side that is only white space."""

    @override
    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        pairs = zip(sources, targets, strict=True)
        return [row for row, (s, t) in enumerate(pairs) if not s or not t or s.isspace() or t.isspace()]


@component("filter", "identical")
class Identical(DroppingFilter):
    """Drops pairs whose sides are the same text, ignoring white space at the ends."""

    @override
    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        return [row for row, (s, t) in enumerate(zip(sources, targets, strict=True)) if s.strip() == t.strip()]


def without_controls(lines: list[str]) -> list[str]:
    """The lines without control characters and invisible ones."""
    invisible, spaces = _patterns()
    # `isprintable` is fast but too broad: it also finds tabs and no-break spaces.
    return [line if line.isprintable() else invisible.sub("", spaces.sub(" ", line)) for line in lines]


@functools.cache
def _patterns() -> tuple[Any, Any]:
    """Patterns for invisible characters, and for control characters that are white space.

    Invisible are control characters and, of category Cf, soft hyphens, zero-width spaces, byte order marks, direction
    marks and tags; but not the joiners in the spelling of Persian, Indic scripts and emoji, nor the Arabic number
    signs, which are Cf but visible. White space separates words, so it becomes a space.
    """
    import regex

    invisible = regex.compile(r"[\p{Cc}\p{Cf}--[\t\u200C\u200D\p{Prepended_Concatenation_Mark}]]", regex.V1)
    return invisible, regex.compile(r"[\t-\r\x1C-\x1F\x85]")


@component("filter", "held_out_overlap")
class HeldOutOverlap(DroppingFilter):
    """Drops pairs that are in the validation or test set, ignoring case, width and white space."""

    needs_held_out: ClassVar[bool] = True
    mode: Literal["pair", "side"]
    """What must match: the same pair, or either of its sides."""

    @override
    def report_name(self) -> str:
        return "held-out overlap"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        folded = {(fold(source), fold(target)) for source, target in corpus.held_out}
        # An empty side in a held-out set matches nothing.
        known_sources, known_targets = {s for s, _ in folded if s}, {t for _, t in folded if t}

        def is_there(source: str, target: str) -> bool:
            source = fold(source)
            if self.mode == "pair":
                return source in known_sources and (source, fold(target)) in folded
            return source in known_sources or fold(target) in known_targets

        def find(sources: list[str], targets: list[str]) -> list[int]:
            return [row for row, pair in enumerate(zip(sources, targets, strict=True)) if is_there(*pair)]

        return find


def fold(line: str) -> str:
    """Normalise a line for comparison, so that a held-out line matches its cleaned copy in the corpus."""
    if not line.isprintable():
        line = without_controls([line])[0]
    if line.isascii():
        return " ".join(line.lower().split())
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())


@component("filter", "scripts")
class Scripts(DroppingFilter):
    """Rejects pairs with too small a fraction of a side's letters in given Unicode scripts (Annex 24)."""

    side: Literal["source", "target"]
    """The side to check."""
    scripts: Annotated[list[Script], Field(min_length=1)]
    """Allowed scripts, such as [Latin] or [Han, Hiragana, Katakana]."""
    min_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum fraction of the side's letters in its scripts. A side without letters passes."""

    @override
    def report_name(self) -> str:
        return f"{self.side} script"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        from data_pipeline.preparation.identification import script_filter

        find = script_filter(place, self.scripts, self.min_share)
        return lambda sources, targets: find(sources if self.side == "source" else targets)


@component("filter", "language_identification")
class LanguageIdentification(DroppingFilter):
    """Drops pairs with a side in another language (optional packages: zeromt[langid], zeromt[fasttext])."""

    min_probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Minimum probability at which a side counts as another language."""
    model: PathText = "py3langid"
    """py3langid, or the path of a fastText model, such as lid.176.bin (zeromt[fasttext])."""

    @override
    def report_name(self) -> str:
        return "language"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        from data_pipeline.preparation.identification import language_filter

        return language_filter(place, corpus, self.min_probability, self.model)
