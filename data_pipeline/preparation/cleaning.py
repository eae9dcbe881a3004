"""Filters of training pairs that look at the text, and those that change it.

A filter that is off costs nothing. Those that are on look at a whole chunk of pairs at a time and are pure: the same
pair is always kept, dropped or changed alike, whatever stands beside it.
"""

import functools
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import regex
from numpy.typing import NDArray

from configs import CleaningSection
from data_pipeline.preparation.language_id import LanguageFilter
from data_pipeline.preparation.scripts import ScriptFilter

FILTERS = (
    "normalization",
    "control characters",
    "empty",
    "identical",
    "too many characters",
    "source script",
    "target script",
    "language",
    "held-out overlap",
    "too long",
    "length ratio",
    "duplicate",
)
"""In the order in which they are applied. The last three look at pieces and stand in `encode`."""
(NORMALIZATION, CONTROL, EMPTY, IDENTICAL, TOO_MANY, SOURCE_SCRIPT, TARGET_SCRIPT, LANGUAGE, HELD_OUT, TOO_LONG) = (
    FILTERS[:10]
)

_INVISIBLE = regex.compile(r"[\p{Cc}\p{Cf}--[\t\u200C\u200D\p{Prepended_Concatenation_Mark}]]", regex.V1)
"""Control characters, and invisible ones of category Cf: soft hyphens, zero-width spaces, byte order marks, marks of
direction, tags. Not the joiners that Persian, Indic scripts and emoji are spelled with, nor the signs of Arabic that
stand under digits, which are visible though Cf."""
_SPACES = regex.compile(r"[\t-\r\x1C-\x1F\x85]")
"""Control characters that are white space: words stand on either side, so they become a space."""

Rows = NDArray[np.int64]
Change = Callable[[list[str]], list[str]]
Find = Callable[[list[str], list[str]], list[int]]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What is left of a chunk, and what became of the rest."""

    sources: list[str]
    targets: list[str]
    rows: Rows
    """Of each pair that is left: its row in the chunk, ascending."""
    dropped: dict[str, Rows]
    """Rows of the chunk, ascending, by the first filter that took them; a filter that is on is always there."""
    changed: dict[str, int]
    """Pairs that a filter changed on either side, whether or not a later one dropped them."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The pairs of the validation and test sets, as far as training pairs are compared with them."""

    mode: Literal["keep", "pair", "side"]
    sources: frozenset[str]
    """Folded, as are the others."""
    targets: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], mode: Literal["keep", "pair", "side"]) -> "HeldOut":
        """Keep what a mode compares: whole pairs, either side for itself, or nothing."""
        folded = [] if mode == "keep" else [(_fold(source), _fold(target)) for source, target in pairs]
        # An empty side of a held-out set is nobody's translation.
        sources, targets = frozenset(s for s, _ in folded if s), frozenset(t for _, t in folded if t)
        return cls(mode, sources, targets, frozenset(folded))

    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        """Rows of the pairs that stand in a held-out set but for case, width and white space."""
        known, others, pairs = self.sources, self.targets, self.pairs
        if self.mode == "pair":
            suspects = [row for row, line in enumerate(sources) if _fold(line) in known]
            return [row for row in suspects if (_fold(sources[row]), _fold(targets[row])) in pairs]
        sides = enumerate(zip(sources, targets, strict=True))
        return [row for row, (s, t) in sides if _fold(s) in known or _fold(t) in others]


class Cleaner:
    """The filters of one section, in one process.

    Raises:
        UserError: a script or language is not known, or the package that identifies languages is missing.
    """

    def __init__(
        self, section: CleaningSection, *, source_language: str, target_language: str, held_out: HeldOut
    ) -> None:
        self._changes: list[tuple[str, Change]] = []
        if section.normalization != "none":
            self._changes.append((NORMALIZATION, _normalizer(section.normalization)))
        if section.control_characters == "remove":
            self._changes.append((CONTROL, _without_controls))
        self._filters: list[tuple[str, Find]] = []
        if section.control_characters == "drop":
            self._filters.append((CONTROL, _find_controls))
        self._filters.append((EMPTY, find_empty))
        if section.identical == "drop":
            self._filters.append((IDENTICAL, find_identical))
        if section.max_characters is not None:
            self._filters.append((TOO_MANY, _longer_than(section.max_characters)))
        if section.source_scripts:
            scripts = ScriptFilter("source_scripts", section.source_scripts, section.min_script_share)
            self._filters.append((SOURCE_SCRIPT, lambda sources, _: scripts.find(sources)))
        if section.target_scripts:
            others = ScriptFilter("target_scripts", section.target_scripts, section.min_script_share)
            self._filters.append((TARGET_SCRIPT, lambda _, targets: others.find(targets)))
        if section.language_identification:
            languages = LanguageFilter(source_language, target_language, section.min_language_probability)
            self._filters.append((LANGUAGE, languages.find))
        if section.held_out_overlap != "keep":
            self._filters.append((HELD_OUT, held_out.find))

    def clean(self, sources: list[str], targets: list[str]) -> Cleaned:
        """Apply every filter to a chunk of pairs."""
        rows = np.arange(len(sources), dtype=np.int64)
        dropped: dict[str, Rows] = {}
        changed: dict[str, int] = {}
        for name, change in self._changes:
            before = sources, targets
            sources, targets = change(sources), change(targets)
            changed[name] = _num_changed(before, (sources, targets))
        for name, find in self._filters:
            bad = find(sources, targets)
            dropped[name] = rows[bad] if bad else rows[:0]
            if bad:
                left = np.delete(np.arange(len(sources)), bad)
                sources, targets = [sources[i] for i in left], [targets[i] for i in left]
                rows = rows[left]
        return Cleaned(sources, targets, rows, dropped, changed)


def find_empty(sources: list[str], targets: list[str]) -> list[int]:
    """Rows with nothing but white space on a side."""
    pairs = zip(sources, targets, strict=True)
    return [row for row, (s, t) in enumerate(pairs) if not s or not t or s.isspace() or t.isspace()]


def find_identical(sources: list[str], targets: list[str]) -> list[int]:
    """Rows whose sides are the same text, white space at the ends apart."""
    pairs = zip(sources, targets, strict=True)
    return [row for row, (s, t) in enumerate(pairs) if s.strip() == t.strip()]


def _num_changed(before: tuple[list[str], list[str]], after: tuple[list[str], list[str]]) -> int:
    if before == after:
        return 0
    return sum(s != u or t != v for s, t, u, v in zip(*before, *after, strict=True))


def _normalizer(form: Literal["nfc", "nfkc"]) -> Change:
    name: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    normalize = functools.partial(unicodedata.normalize, name)
    return lambda lines: list(map(normalize, lines))


def _without_controls(lines: list[str]) -> list[str]:
    # `isprintable` is quick and finds more than is meant: tabs and no-break spaces too.
    return [line if line.isprintable() else _INVISIBLE.sub("", _SPACES.sub(" ", line)) for line in lines]


def _find_controls(sources: list[str], targets: list[str]) -> list[int]:
    pairs = zip(sources, targets, strict=True)
    suspects = [row for row, (s, t) in enumerate(pairs) if not (s.isprintable() and t.isprintable())]
    return [row for row in suspects if _INVISIBLE.search(sources[row]) or _INVISIBLE.search(targets[row])]


def _longer_than(limit: int) -> Find:
    def find(sources: list[str], targets: list[str]) -> list[int]:
        return [
            row for row, (s, t) in enumerate(zip(sources, targets, strict=True)) if len(s) > limit or len(t) > limit
        ]

    return find


def _fold(line: str) -> str:
    """What is compared: a held-out line and its cleaned copy in the corpus are the same."""
    if not line.isprintable():
        line = _without_controls([line])[0]
    if line.isascii():
        return " ".join(line.lower().split())
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())
