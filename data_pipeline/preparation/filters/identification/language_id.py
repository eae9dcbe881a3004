"""Language identification with py3langid, an optional package that includes its model; nothing is downloaded.

py3langid is a fork of langid.py (Lui and Baldwin, 2012): naive Bayes over byte sequences.
"""

import functools
from typing import Any

from configs import UserError
from configs.languages import language

NO_LANGUAGE = "zxx"
"""Numbers, addresses and the like, which do not count as another language."""
NORWEGIAN = frozenset({"no", "nn"})
"""Pairs of languages that are easily confused."""


class LanguageFilter:
    """Finds pairs with a side in the wrong language."""

    def __init__(self, place: str, source_language: str, target_language: str, min_probability: float) -> None:
        """Raises `UserError` if the package is missing or its model does not know a language."""
        self._min_probability = min_probability
        try:
            identifier = load_identifier()
        except ImportError as error:
            raise UserError(
                f"{place}: the package py3langid is missing; install it with `pip install zeromt[langid]`"
            ) from error
        self._classify = identifier.classify
        self._own = tuple(
            _labels(place, field, language)
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
        return probability >= self._min_probability and code not in own and code != NO_LANGUAGE


@functools.cache
def load_identifier() -> Any:
    """py3langid's model, loaded once per process: half a second and about 100 MB.

    Raises:
        ImportError: the package is missing.
    """
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def _labels(place: str, field: str, code: str) -> frozenset[str]:
    """The model's labels for a language: those of the same language, else of the same macrolanguage."""
    known = {label: language(label) for label in load_identifier().labels}
    own = language(code)
    same = {own.code, *(NORWEGIAN if own.code in NORWEGIAN else ())}
    labels = {label for label, meant in known.items() if meant.code in same}
    labels = labels or {label for label, meant in known.items() if meant.macrolanguage == own.macrolanguage}
    if not labels:
        raise UserError(
            f"prepare.{field}: {code}: py3langid does not know it; allowed with "
            f"{place} is one of {', '.join(sorted(set(known) - {NO_LANGUAGE}))}"
        )
    return frozenset(labels)
