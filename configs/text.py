"""Makes text from outside, such as file names and lines of a corpus, safe to display; and writes figures as JSON."""

import json
import math
import unicodedata
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def visible(text: str) -> str:
    """The text as one line: control characters, line separators and lone surrogates become Python's escape sequences.

    Otherwise a name with a line feed could fake a line of output, and one with an escape sequence control the terminal.
    """
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in _INVISIBLE else c for c in text)


def visible_name(text: str) -> str:
    """Like `visible`, and bidirectional control characters are escaped too: for names within a line.

    They would reverse the rest of the line. Sentences may need them, and have a line of their own.
    """
    return "".join(ascii(c)[1:-1] if unicodedata.bidirectional(c) in _BIDI_CONTROLS else c for c in visible(text))


def to_json(tree: Any, *, indent: int | None = None) -> str:
    """Standard JSON: a number that is not finite becomes null, not Python's `Infinity` or `NaN`."""
    return json.dumps(_finite(tree), indent=indent, allow_nan=False)


def _finite(tree: Any) -> Any:
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    return [_finite(value) for value in tree] if isinstance(tree, list | tuple) else tree
