"""Fields by name: in the tree of a JSON object, or in a row of a table.

A field such as `translation.en` is the key of this name or, if there is none, a path of keys; a key may itself contain
dots.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

from configs import UserError

MISSING = object()
"""The result of `find` if there is no such field."""
MAX_NAMES = 12
NAME_CHARACTERS = 60
"""Most of them that a message shows."""
_ONE_LINE = str.maketrans("\n\r", "  ")


def find(tree: Any, field: str) -> Any:
    """The value of a field: of the key with exactly this name, else at a path of keys; `MISSING` if there is none.

    Of several paths the one with the longest first key is taken. `Dataset.flatten()` makes keys such as
    `translation.en`.
    """
    if not isinstance(tree, dict):
        return MISSING
    for key, rest in splits(field):
        if key in tree and (value := tree[key] if rest is None else find(tree[key], rest)) is not MISSING:
            return value
    return MISSING


def splits(field: str) -> Iterator[tuple[str, str | None]]:
    """Splits of a field into a key and the rest, longest key first: the field itself with an empty rest."""
    yield field, None
    end = field.rfind(".")
    while end >= 0:
        yield field[:end], field[end + 1 :]
        end = field.rfind(".", 0, end)


def side_of(value: Any, field: str, where: str) -> str:
    """A side of a pair as one line.

    Raises:
        UserError: it is no string. The message begins with `where`.
    """
    if not isinstance(value, str):
        kind = "null" if value is None else f"a {type(value).__name__}"
        raise UserError(f"{where}: {field} is {kind}; allowed is a string")
    return on_one_line(value)


def further_text(value: Any) -> str:
    """A further text of a pair as one line: of a number or another value its JSON, of none the empty text."""
    if value is None or value is MISSING:
        return ""
    return on_one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def check_text(text: str, field: str, where: str) -> None:
    """Refuse what JSON's escapes can write and UTF-8 text cannot.

    Raises:
        UserError: it holds half of a surrogate pair, or a NUL. The message begins with `where`.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {field} holds half of a surrogate pair; allowed is text") from error
    if "\0" in text:
        raise UserError(f"{where}: {field} holds a NUL; allowed is text")


def listed(names: Iterable[str]) -> str:
    """Names that a file has, for a message: the first few, whatever is in them."""
    first = [on_one_line(name)[:NAME_CHARACTERS] for name in itertools.islice(names, MAX_NAMES)]
    return ", ".join(first) or "none"


def on_one_line(text: str) -> str:
    """The text with spaces for line ends."""
    return text.translate(_ONE_LINE) if "\n" in text or "\r" in text else text
