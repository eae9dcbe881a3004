"""Filters of pairs with equal or empty sides."""

from typing_extensions import override

from configs.components import DroppingFilter, component


@component("filter", "empty")
class Empty(DroppingFilter):
    """Drops pairs with a side that is only white space."""

    @override
    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        pairs = zip(sources, targets, strict=True)
        return [row for row, (s, t) in enumerate(pairs) if not s or not t or s.isspace() or t.isspace()]


@component("filter", "identical")
class Identical(DroppingFilter):
    """Drops pairs whose sides are the same text, ignoring white space at the ends."""

    @override
    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        return find_identical(sources, targets)


def find_identical(sources: list[str], targets: list[str]) -> list[int]:
    """Rows whose sides are the same text, ignoring white space at the ends."""
    return [row for row, (s, t) in enumerate(zip(sources, targets, strict=True)) if s.strip() == t.strip()]
