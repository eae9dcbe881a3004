"""Scripts: whether a line's letters are in the scripts of its language (Unicode Standard Annex 24)."""

import difflib
import functools
import sys
from collections.abc import Sequence

import numpy as np
import regex
from numpy.typing import NDArray

from configs import UserError

# fmt: off
KNOWN = (
    "Adlam", "Arabic", "Armenian", "Balinese", "Bengali", "Bopomofo", "Canadian_Aboriginal", "Cherokee", "Coptic",
    "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Gothic", "Greek", "Gujarati", "Gurmukhi", "Han", "Hangul",
    "Hebrew", "Hiragana", "Javanese", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam", "Meetei_Mayek",
    "Mongolian", "Myanmar", "New_Tai_Lue", "Nko", "Ol_Chiki", "Oriya", "Osmanya", "Sinhala", "Sundanese", "Syriac",
    "Tai_Le", "Tai_Tham", "Tamil", "Telugu", "Thaana", "Thai", "Tibetan", "Tifinagh", "Vai", "Yi",
)
# fmt: on
"""Scripts of living languages, for messages. Unicode's other scripts can be used too."""
SHARED = r"[\p{Script=Common}\p{Script=Inherited}]"
NO_LETTER, FOREIGN, OWN = 0, 1, 2


class ScriptFilter:
    """Finds lines of too small a fraction of letters in some scripts. Letters that many scripts share do not count."""

    def __init__(self, place: str, scripts: Sequence[str], min_share: float) -> None:
        """Raises `UserError` naming the place if a script is unknown or has no letters."""
        self._min_share = min_share
        self._kinds = _letters().astype(np.uint8) * FOREIGN
        """For every code point: FOREIGN, OWN, or NO_LETTER, also for letters of many scripts."""
        for script in scripts:
            own = _letters_of(script)
            if not own.any():
                raise UserError(f"{place}: {script}: {_hint(script)}")
            self._kinds[own] = OWN

    def find(self, lines: list[str]) -> list[int]:
        """Rows of lines whose fraction of letters in the scripts is too small."""
        ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)))
        codes = np.frombuffer("".join(lines).encode("utf-32-le"), dtype="<u4")
        kinds = self._kinds[codes]
        own, foreign = (_per_line(kinds == kind, ends) for kind in (OWN, FOREIGN))
        fraction = own / np.maximum(own + foreign, 1)
        rows: list[int] = np.flatnonzero((fraction < self._min_share) & (own + foreign > 0)).tolist()
        return rows


def _per_line(flags: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return np.diff(total[ends], prepend=0)


@functools.cache
def _letters() -> NDArray[np.bool_]:
    """Whether each code point is a letter of one script."""
    return _matches(rf"[\p{{L}}--{SHARED}]+")


@functools.cache
def _letters_of(script: str) -> NDArray[np.bool_]:
    """Whether each code point is a letter of a script; all false for an unknown script."""
    try:
        return _matches(rf"[\p{{L}}&&\p{{Script={script}}}--{SHARED}]+")
    except regex.error:
        return np.zeros(1, dtype=np.bool_)


def _matches(pattern: str) -> NDArray[np.bool_]:
    runs = regex.compile(pattern, regex.V1)
    is_match = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
    for run in runs.finditer("".join(map(chr, range(len(is_match))))):
        is_match[run.start() : run.end()] = True
    return is_match


def _hint(script: str) -> str:
    near = difflib.get_close_matches(script.title(), KNOWN, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "allowed is a Unicode script that has letters, such as Latin or Han"
