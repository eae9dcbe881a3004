"""Checks of lists that callers pass."""

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def as_text(given: Iterable[str], what: str) -> list[str]:
    """The argument as a list of lines.

    Raises:
        TypeError: see `as_list`.
        UserError: a line is no text.
    """
    from configs import UserError

    lines = as_list(given, str, what)
    for number, line in enumerate(lines):
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{what}[{number}]: holds half of a surrogate pair; allowed is text") from error
    return lines


def as_list(given: Iterable[T], kind: type | tuple[type, ...], what: str) -> list[T]:
    """The argument as a list.

    A string is refused, as Python would treat it as a list of letters.

    Raises:
        TypeError: it is a string or not iterable, or an item has the wrong type.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(one.__name__ for one in kinds)
    if isinstance(given, str | bytes | Path) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: a {type(given).__name__}; give a list of {names}: [{given!r:.60}]")
    items = list(given)
    for number, item in enumerate(items):
        if not isinstance(item, kinds):
            raise TypeError(f"{what}[{number}]: a {type(item).__name__}; give {names}")
    return items
