"""What is shown: text from outside, such as names of files and lines of a corpus, and figures as JSON."""

import json
import math
import unicodedata
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_TURNING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def visible(text: str) -> str:
    """The text in one line: control characters, line separators and lone surrogates as Python writes them.

    A name with a line feed or an escape sequence would otherwise write lines of its own, or to the terminal.
    """
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in _INVISIBLE else c for c in text)


def upright(text: str) -> str:
    """As `visible`, without what turns the direction of the text behind it, for names that stand within a line.

    Sentences keep such characters: they may belong there, and stand alone.
    """
    return "".join(ascii(c)[1:-1] if unicodedata.bidirectional(c) in _TURNING else c for c in visible(text))


def to_json(tree: Any, *, indent: int | None = None) -> str:
    """JSON as every reader takes it: where a number is not finite, null and not Python's own `Infinity` and `NaN`."""
    return json.dumps(_finite(tree), indent=indent, allow_nan=False)


def _finite(tree: Any) -> Any:
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    return [_finite(value) for value in tree] if isinstance(tree, list | tuple) else tree
