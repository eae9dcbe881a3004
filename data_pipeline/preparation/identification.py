"""Which script and which language a text is in, for the filters of both.

Scripts: whether a line's letters are in those of its language (Unicode Standard Annex 24). Languages: by one of two
identifiers, each an optional package; nothing is downloaded. py3langid is a fork of langid.py (Lui and Baldwin, 2012),
naive Bayes over byte sequences, and includes its model. fastText (Joulin et al., 2017) reads a model from a file.
"""

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import regex
from numpy.typing import NDArray

from configs import UserError
from configs.components import Corpus, Find
from configs.languages import language

SHARED = r"[\p{Script=Common}\p{Script=Inherited}]"
FOREIGN, OWN = 1, 2
PY3LANGID = "py3langid"
"""An identifier by name; any other name is the path of a fastText model."""
NO_LANGUAGE = frozenset({"zxx", "und"})
"""Labels for numbers, addresses and the like, and for what is undecided: they do not count as another language."""
NORWEGIAN = frozenset({"no", "nn"})
"""Pairs of languages that are easily confused."""
LABEL = "__label__"
"""What fastText's labels begin with."""


def script_filter(place: str, scripts: Sequence[str], min_share: float) -> Callable[[list[str]], list[int]]:
    """A function that finds lines of too small a fraction of letters in some scripts.

    Letters that many scripts share do not count.

    Raises:
        UserError: a script is unknown or has no letters. The message begins with the place.
    """
    kinds = _letters("").astype(np.uint8) * FOREIGN
    """For every code point: FOREIGN, OWN, or 0 for no letter or one of many scripts."""
    for script in scripts:
        own = _letters(script)
        if not own.any():
            raise UserError(f"{place}: {script}: allowed is a Unicode script that has letters, such as Latin or Han")
        kinds[own] = OWN

    def find(lines: list[str]) -> list[int]:
        ends = np.cumsum(np.fromiter(map(len, lines), dtype=np.int64, count=len(lines)))
        of_line = kinds[np.frombuffer("".join(lines).encode("utf-32-le"), dtype="<u4")]
        own, foreign = (_per_line(of_line == kind, ends) for kind in (OWN, FOREIGN))
        fraction = own / np.maximum(own + foreign, 1)
        rows: list[int] = np.flatnonzero((fraction < min_share) & (own + foreign > 0)).tolist()
        return rows

    return find


def _per_line(flags: NDArray[np.bool_], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    total = np.concatenate([[0], np.cumsum(flags, dtype=np.int64)])
    return np.diff(total[ends], prepend=0)


@functools.cache
def _letters(script: str) -> NDArray[np.bool_]:
    """Whether each code point is a letter of a script, or of any one script; all false for an unknown script."""
    is_match = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
    own = rf"&&\p{{Script={script}}}" if script else ""
    try:
        runs = regex.compile(rf"[\p{{L}}{own}--{SHARED}]+", regex.V1)
    except regex.error:
        return is_match
    for run in runs.finditer("".join(map(chr, range(len(is_match))))):
        is_match[run.start() : run.end()] = True
    return is_match


class Identifier(NamedTuple):
    """Says which language a line is in."""

    name: str
    """For messages."""
    labels: frozenset[str]
    """Codes of the languages that it knows, in any form of `configs.languages`."""
    classify: Callable[[str], tuple[str, float]]
    """The most probable label of a line, and its probability."""


def language_filter(place: str, corpus: Corpus, min_probability: float, model: str) -> Find:
    """A function that finds pairs with a side in another language with sufficient probability.

    Args:
        place: of what asks, for messages.
        corpus: names the languages.
        min_probability: at which a side counts as another language.
        model: the identifier: see `load_identifier`.

    Raises:
        UserError: a package or file is missing, or the model does not know a language.
    """
    try:
        identifier = load_identifier(model)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    own_source = _labels(identifier, place, "source_language", corpus.source_language)
    own_target = _labels(identifier, place, "target_language", corpus.target_language)

    def is_other(line: str, own: frozenset[str]) -> bool:
        code, probability = identifier.classify(line)
        return probability >= min_probability and code not in own and code not in NO_LANGUAGE

    def find(sources: list[str], targets: list[str]) -> list[int]:
        pairs = enumerate(zip(sources, targets, strict=True))
        return [row for row, (s, t) in pairs if is_other(s, own_source) or is_other(t, own_target)]

    return find


@functools.cache
def load_identifier(model: str) -> Identifier:
    """An identifier, loaded once per process.

    Args:
        model: `py3langid` (half a second, about 100 MB), or the path of a fastText model.

    Raises:
        UserError: a package or the file is missing, or the file is not a fastText model that labels lines.
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

    try:
        model = fasttext.load_model(str(path))
        every, _ = model.predict("a", k=-1, threshold=-1.0)  # of the labels of a line, which always has an end
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"{path}: is not a fastText model that labels lines: {error}; allowed is {PY3LANGID}, or such a file"
        ) from error

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
