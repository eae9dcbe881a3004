"""The position of each token in a forward pass, for packed rows and for dropout by position.

Shapes: N tokens of a side, R rows (pairs).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Projection = Callable[[Tensor], tuple[Tensor, ...]]
SideName = Literal["source", "target"]
LayoutKind = Literal["none", "padded", "flash", "efficient"]
"""none: modules do not know token positions. padded: they do, and rows are padded. Others: they do, rows are packed,
one behind the other without padding, and attention within them is of this kind."""
PACKED: frozenset[LayoutKind] = frozenset({"flash", "efficient"})


@dataclass(kw_only=True, slots=True, frozen=True)
class Side:
    """The source or the target tokens of a pass."""

    places: Tensor
    """(N, 4) int32: lower and upper half of the seed of the token's lane, number of its pair in the lane, position."""
    bounds: Tensor | None
    """(R + 1) int32: row r has the tokens from bounds[r] to before bounds[r + 1]. None if the rows are padded to one
    length; then padding counts among the tokens."""
    longest: int
    """Number of tokens of the longest row."""

    @property
    def positions(self) -> Tensor:
        """(N) int32: position of each token within its row."""
        return self.places[:, 3]


@dataclass(kw_only=True, slots=True, frozen=True)
class Layout:
    """The layout of one forward pass."""

    source: Side
    target: Side
    kind: LayoutKind

    @property
    def is_packed(self) -> bool:
        """Whether the rows follow one another without padding; then ids are (1, N)."""
        return self.source.bounds is not None

    def side(self, name: SideName) -> Side:
        """Source or target."""
        return self.source if name == "source" else self.target


class Current:
    """The state of the current pass, shared by all modules of a model."""

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.projections: Mapping[str, Projection] = {}
        """Joined projections, by the name of the attention module that uses them."""
        self.is_bare = False
        """Whether the layers of this pass are known to have no hooks: kernels need not look."""
        self.normed: tuple[Tensor, Tensor, object] | None = None
        """Of the last pre-norm residual: its sum, that sum normalised already, and the norm that did it."""

    @contextlib.contextmanager
    def using(
        self, layout: Layout | None, projections: Mapping[str, Projection] | None = None, *, is_bare: bool = False
    ) -> Iterator[None]:
        """A context in which the current pass has this layout and these projections."""
        before = self.layout, self.projections, self.is_bare
        self.layout, self.projections, self.is_bare = layout, projections or {}, is_bare
        try:
            yield
        finally:
            self.layout, self.projections, self.is_bare = before
            self.normed = None


def first_possible(layouts: Mapping[LayoutKind, str]) -> tuple[LayoutKind, str]:
    """The layout to take without a choice, and why rows are not packed where they are not.

    Args:
        layouts: see `Objective.layouts`.
    """
    kind = next(kind for kind, why in layouts.items() if not why)
    return kind, "" if kind in PACKED else _why_not_packed(layouts)


def _why_not_packed(layouts: Mapping[LayoutKind, str]) -> str:
    """What each way of attention within packed rows lacks, in one line."""
    reasons: dict[str, list[str]] = {}
    for kind, why in layouts.items():
        if why:
            reasons.setdefault(why, []).append(kind)
    if len(reasons) == 1:
        return next(iter(reasons))
    return "; ".join(f"{', '.join(kinds)}: {why}" for why, kinds in reasons.items())
