"""Fields by name: in the tree of a JSON object, or in a row of a table.

A field such as `translation.en` is the key of this name or, if there is none, a path of keys; a key may itself contain
dots.
"""

import itertools
import json
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from configs import UserError
from data_pipeline.preparation.raw.lines import MAX_LINE_BYTES

MAX_NAMES = 12
NAME_CHARACTERS = 60
"""Most of them that a message shows."""
_ONE_LINE = str.maketrans("\n\r", "  ")


def find(tree: Any, field: str) -> Any:
    """The value of a field, None if there is none: of the key with exactly this name, else at a path of keys.

    Of several paths the one with the longest first key is taken. `Dataset.flatten()` makes keys such as
    `translation.en`.
    """
    if not isinstance(tree, dict):
        return None
    if field in tree:
        return tree[field]
    end = field.rfind(".")
    while end >= 0:
        if (value := find(tree.get(field[:end]), field[end + 1 :])) is not None:
            return value
        end = field.rfind(".", 0, end)
    return None


def texts_of(tree: Any, fields: Sequence[str], where: str) -> list[str]:
    """The source, the target and the further texts of an object or row; further numbers and lists as JSON.

    Args:
        tree: the object.
        fields: of the texts, in this order.
        where: file and line, for messages.

    Raises:
        UserError: a side is no string.
    """
    values = [find(tree, field) for field in fields]
    for value, field in zip(values[:2], fields, strict=False):
        if not isinstance(value, str):
            kind = "missing" if value is None else f"a {type(value).__name__}"
            raise UserError(f"{where}: {field} is {kind}; allowed is a string there (source_field, target_field)")
    return [on_one_line(value if isinstance(value, str) else _further(value)) for value in values]


def _further(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, numbers.Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def checked(text: str, where: str) -> str:
    """The text on one line.

    Raises:
        UserError: it cannot stand in a line of a file. The message begins with `where`.
    """
    if len(text) > MAX_LINE_BYTES or "\0" in text:
        raise UserError(f"{where}: holds a NUL, or more than {MAX_LINE_BYTES} characters; allowed is text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: holds half of a surrogate pair; allowed is text") from error
    return on_one_line(text)


def on_one_line(text: str) -> str:
    """The text with spaces for line ends."""
    return text.translate(_ONE_LINE) if "\n" in text or "\r" in text else text


def listed(names: Iterable[str]) -> str:
    """Names that a file has, for a message: the first few, whatever is in them."""
    first = [on_one_line(name)[:NAME_CHARACTERS] for name in itertools.islice(names, MAX_NAMES)]
    return ", ".join(first) or "none"
