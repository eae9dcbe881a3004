"""Text from outside, such as names of files and lines of a corpus, made fit to be shown."""

import unicodedata

_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """The text in one line: control characters, line separators and lone surrogates as Python writes them.

    A name with a line feed or an escape sequence would otherwise write lines of its own, or to the terminal.
    """
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in _INVISIBLE else c for c in text)
