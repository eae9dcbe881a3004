"""Which script and which language a text is in, for the filters of both.

Scripts: whether a line's letters are in those of its language (Unicode Standard Annex 24). Languages: by one of two
identifiers, each an optional package; nothing is downloaded. py3langid is a fork of langid.py (Lui and Baldwin, 2012),
naive Bayes over byte sequences, and includes its model. fastText (Joulin et al., 2017) reads a model from a file.
"""

import difflib
import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import regex
from numpy.typing import NDArray

from configs import UserError
from configs.languages import language

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


PY3LANGID = "py3langid"
"""An identifier by name; any other name is the path of a fastText model."""
NO_LANGUAGE = frozenset({"zxx", "und"})
"""Labels for numbers, addresses and the like, and for what is undecided: they do not count as another language."""
NORWEGIAN = frozenset({"no", "nn"})
"""Pairs of languages that are easily confused."""
LABEL = "__label__"
"""What fastText's labels begin with."""


@dataclass(frozen=True, slots=True)
class Identifier:
    """Says which language a line is in."""

    name: str
    """For messages."""
    labels: frozenset[str]
    """Codes of the languages that it knows, in any form of `configs.languages`."""
    classify: Callable[[str], tuple[str, float]]
    """The most probable label of a line, and its probability."""


class LanguageFilter:
    """Finds pairs with a side in the wrong language.

    Args:
        place: of what asks, for messages.
        source_language, target_language: codes.
        min_probability: at which a side counts as another language.
        model: the identifier: see `load_identifier`.

    Raises:
        UserError: a package or file is missing, or the model does not know a language.
    """

    def __init__(
        self, place: str, source_language: str, target_language: str, min_probability: float, model: str = PY3LANGID
    ) -> None:
        self._min_probability = min_probability
        try:
            identifier = load_identifier(model)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        self._classify = identifier.classify
        self._own = tuple(
            _labels(identifier, place, field, language)
            for field, language in (("source_language", source_language), ("target_language", target_language))
        )

    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        """Rows of pairs with a side that is in another language with sufficient probability."""
        own_source, own_target = self._own
        return [
            row
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
            if self._is_other(source, own_source) or self._is_other(target, own_target)
        ]

    def _is_other(self, line: str, own: frozenset[str]) -> bool:
        code, probability = self._classify(line)
        return probability >= self._min_probability and code not in own and code not in NO_LANGUAGE


@functools.cache
def load_identifier(model: str) -> Identifier:
    """An identifier, loaded once per process.

    Args:
        model: `py3langid` (half a second, about 100 MB), or the path of a fastText model.

    Raises:
        UserError: a package or the file is missing, or the file is no fastText model that labels lines.
    """
    package, extra = (PY3LANGID, "langid") if model == PY3LANGID else ("fasttext-predict", "fasttext")
    try:
        return _py3langid() if model == PY3LANGID else _fasttext(Path(model))
    except ImportError as error:
        raise UserError(f"the package {package} is missing; install it with `pip install zeromt[{extra}]`") from error


def _py3langid() -> Identifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    model = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    return Identifier(PY3LANGID, frozenset(model.labels), model.classify)


def _fasttext(path: Path) -> Identifier:
    import fasttext

    if not path.is_file():
        raise UserError(
            f"{path}: no such file; allowed is {PY3LANGID}, or the path of a fastText model such as lid.176.bin"
        )
    try:
        model = fasttext.load_model(str(path))
        every, _ = model.predict("a", k=-1, threshold=-1.0)  # of the labels of a line, which always has an end
    except (ValueError, RuntimeError) as error:
        raise UserError(f"{path}: is no fastText model that labels lines: {error}") from error

    def classify(line: str) -> tuple[str, float]:
        labels, probabilities = model.predict(line.replace("\n", " "))
        if not labels:  # no word or run of letters that it knows
            return "und", 0.0
        return labels[0].removeprefix(LABEL), float(probabilities[0])

    return Identifier(path.name, frozenset(label.removeprefix(LABEL) for label in every), classify)


def _labels(identifier: Identifier, place: str, field: str, code: str) -> frozenset[str]:
    """The identifier's labels for a language: those of the same language, else of the same macrolanguage."""
    known = {label: language(label) for label in identifier.labels}
    own = language(code)
    same = {own.code, *(NORWEGIAN if own.code in NORWEGIAN else ())}
    labels = {label for label, meant in known.items() if meant.code in same}
    labels = labels or {label for label, meant in known.items() if meant.macrolanguage == own.macrolanguage}
    if not labels:
        raise UserError(
            f"prepare.{field}: {code}: {identifier.name} does not know it; allowed with "
            f"{place} is one of {', '.join(sorted(set(known) - NO_LANGUAGE))}"
        )
    return frozenset(labels)
