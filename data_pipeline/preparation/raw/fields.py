"""Where a field such as `translation.en` stands in a tree: a key may have dots in its own name."""

from collections.abc import Iterator
from typing import Any

MISSING = object()
"""What `find` gives where there is nothing."""


def find(tree: Any, field: str) -> Any:
    """What stands at a field: under the key of exactly this name, else under a path of keys; `MISSING` for nothing.

    Of several paths that of the longest first key is taken. `Dataset.flatten()` makes keys such as `translation.en`.
    """
    if not isinstance(tree, dict):
        return MISSING
    for key, rest in splits(field):
        if key in tree and (found := tree[key] if rest is None else find(tree[key], rest)) is not MISSING:
            return found
    return MISSING


def splits(field: str) -> Iterator[tuple[str, str | None]]:
    """A field as a key and what is behind it, the longest key first: itself, and nothing behind it."""
    yield field, None
    end = field.rfind(".")
    while end >= 0:
        yield field[:end], field[end + 1 :]
        end = field.rfind(".", 0, end)
