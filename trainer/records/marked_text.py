"""Texts beside one another, with their differences marked."""

import difflib
import re
from collections.abc import Sequence

from configs.process.document import Piece

_TOKEN = re.compile(
    r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]|"
    r"\s+|(?:(?![\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff])\w)+|[^\w\s]"
)
"""A word, a space, or one character: of Chinese, Japanese or Korean, or one that is not part of a word."""


def marked(texts: Sequence[str]) -> list[list[Piece]]:
    """Each text in pieces; marked in the first is what not all others have, in the others what the first lacks."""
    first, *others = [_TOKEN.findall(text) for text in texts]
    in_all = [True] * len(first)
    pieces: list[list[Piece]] = []
    for other in others:
        in_other = [False] * len(first)
        in_first = [False] * len(other)
        for block in difflib.SequenceMatcher(None, first, other).get_matching_blocks():
            in_other[block.a : block.a + block.size] = [True] * block.size
            in_first[block.b : block.b + block.size] = [True] * block.size
        in_all = [a and b for a, b in zip(in_all, in_other, strict=True)]
        pieces.append(_joined(other, in_first))
    return [_joined(first, in_all), *pieces]


def _joined(tokens: Sequence[str], is_common: Sequence[bool]) -> list[Piece]:
    """Join adjacent tokens with the same mark; a space between two marked words is marked too."""
    pieces: list[Piece] = []
    for number, (token, common) in enumerate(zip(tokens, is_common, strict=True)):
        if token.isspace() and 0 < number < len(tokens) - 1:
            differs = not is_common[number - 1] and not is_common[number + 1]
        else:
            differs = not common
        if pieces and pieces[-1][1] == differs:
            pieces[-1] = (pieces[-1][0] + token, differs)
        else:
            pieces.append((token, differs))
    return pieces
