"""Makes text from outside, such as file names and lines of a corpus, safe to display; and writes figures as JSON."""

import hashlib
import json
import math
import re
import unicodedata
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI_CONTROLS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_DIRECTION_MARKS = "\u061c\u200e\u200f"
_HTML = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$])")


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


def shortened(text: str, most: int = 200) -> str:
    """The first characters of a text that is longer, for a message."""
    return text if len(text) <= most else f"{text[:most]}..."


def on_terminal(character: str) -> str:
    """A character, escaped if it does something to a terminal, as direction marks do, too."""
    return ascii(character)[1:-1] if character in _DIRECTION_MARKS else visible_name(character)


def markdown(text: str) -> str:
    """Text in one line, escaped for Markdown: it is shown as it is, whatever marks it has."""
    return _MARKDOWN.sub(lambda match: _HTML.get(match[1], f"\\{match[1]}"), visible(text))


def to_json(tree: Any, *, indent: int | None = None) -> str:
    """Standard JSON: a number that is not finite becomes null, not Python's `Infinity` or `NaN`."""
    return json.dumps(_finite(tree), indent=indent, allow_nan=False)


def digest(tree: object) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _finite(tree: Any) -> Any:
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {key: _finite(value) for key, value in tree.items()}
    return [_finite(value) for value in tree] if isinstance(tree, list | tuple) else tree
