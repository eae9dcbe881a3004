"""Writing systems: whether a line's letters are of those that its language has (Unicode Standard Annex 24)."""

import difflib
import functools
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
"""Those of living languages, for messages. The others of Unicode can be used as well."""
NEVER_COUNT = ("Common", "Inherited", "Unknown")
FOREIGN, OWN = 1, 2


class ScriptFilter:
    """Finds lines of too small a share of letters in some scripts. Letters that many scripts share do not count."""

    def __init__(self, field: str, scripts: Sequence[str], min_share: float) -> None:
        """Raises `UserError` naming the field where a script is not known."""
        for script in scripts:
            _check(field, script)
        self._kinds = _kinds(tuple(scripts))
        self._min_share = min_share

    def find(self, lines: list[str]) -> list[int]:
        """Rows of lines with letters of which less than the least share is in the scripts."""
        ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)))
        codes = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), dtype="<u4")
        kinds = self._kinds[codes]
        own, foreign = (_per_line(kinds == kind, ends) for kind in (OWN, FOREIGN))
        share = own / np.maximum(own + foreign, 1)
        rows: list[int] = np.flatnonzero((share < self._min_share) & (own + foreign > 0)).tolist()
        return rows


def _per_line(flags: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return np.diff(total[ends], prepend=0)


@functools.cache
def _kinds(scripts: tuple[str, ...]) -> NDArray[np.uint8]:
    """For every code point: 0 is no letter or one of many scripts, or FOREIGN, or OWN."""
    everything = "".join(map(chr, range(0x110000)))
    kinds = np.zeros(len(everything), dtype=np.uint8)
    shared = "".join(rf"\p{{Script={name}}}" for name in NEVER_COUNT)
    own = "".join(rf"\p{{Script={name}}}" for name in scripts)
    for kind, letters in ((FOREIGN, rf"[\p{{L}}--[{shared}]]+"), (OWN, rf"[\p{{L}}&&[{own}]--[{shared}]]+")):
        for run in regex.finditer(letters, everything, regex.V1):
            kinds[run.start() : run.end()] = kind
    return kinds


def _check(field: str, script: str) -> None:
    try:
        pattern = regex.compile(rf"\p{{Script={script}}}")
    except regex.error:
        pattern = None
    if pattern is None or any(pattern.match(shared) for shared in (" ", "\u0300", "\U000e0fff")):
        near = difflib.get_close_matches(script.title(), KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "allowed is the name of a Unicode script, such as Latin or Han"
        raise UserError(f"prepare.cleaning.{field}: {script}: {hint}")
