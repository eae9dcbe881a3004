"""Ranges of updates that a run skips after rewinds, as stored in its files."""

from collections.abc import Iterable

SkippedRange = tuple[int, int, int]
"""Updates of one epoch that a rewind skips: epoch, first, last."""
LEFT_OUT = "left_out"
"""Their key in JSON."""


def read_ranges(tree: Iterable[Iterable[int]]) -> list[SkippedRange]:
    """Parse ranges from JSON."""
    return [(int(epoch), int(first), int(last)) for epoch, first, last in tree]
