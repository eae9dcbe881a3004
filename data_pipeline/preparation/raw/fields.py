"""Finds a field such as `translation.en` in a tree; a key may itself contain dots."""

from collections.abc import Iterator
from typing import Any

MISSING = object()
"""The result of `find` if there is no such field."""


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
