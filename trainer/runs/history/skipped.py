"""Updates that a run skips after its rewinds, as its files have them."""

from collections.abc import Iterable

SkippedRange = tuple[int, int, int]
"""Updates of one epoch that a rewind skips: epoch, first, last."""
LEFT_OUT = "left_out"
"""Their key in JSON, as in every checkpoint before they were called so."""


def read_ranges(tree: Iterable[Iterable[int]]) -> list[SkippedRange]:
    """Ranges as JSON gives them back."""
    return [(int(epoch), int(first), int(last)) for epoch, first, last in tree]
