"""Scores that stand in fields of the corpus."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from configs import UserError

MOST = float(np.finfo(np.float32).max)
"""The largest score."""

Scores = NDArray[np.float32]
"""(pairs,), NaN where a pair has none."""


def parse(name: str, texts: Sequence[str], where: Callable[[int], str]) -> Scores:
    """The numbers of some texts; of an empty one and `nan` NaN.

    Args:
        name: of the score, for messages.
        texts: of any number of pairs.
        where: file and line of one of them, for messages.

    Raises:
        UserError: one is no number.
    """
    try:
        with np.errstate(over="ignore"):
            scores = np.array([float(text or "nan") for text in texts], dtype=np.float32)
        if not np.isinf(scores).any() and not any("_" in text for text in texts):
            return scores
    except (ValueError, OverflowError):
        pass
    return np.array([_number(name, text, where(row)) for row, text in enumerate(texts)], dtype=np.float32)


def _number(name: str, text: str, where: str) -> float:
    try:
        value = math.inf if "_" in text else float(text.strip() or "nan")  # Python reads 12_34 as a number
    except ValueError:
        value = math.inf
    if abs(value) > MOST:
        raise UserError(f"{where}: {name} is {text!r:.80}; allowed is a number, or nothing where there is no score")
    return value
