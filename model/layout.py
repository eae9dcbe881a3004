"""Where each token of a forward pass stands: for passes whose rows are not padded, and for dropout that depends on it.

Shapes: N tokens of a side, R rows (pairs).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

Product = Callable[[Tensor], tuple[Tensor, ...]]
ROOM = 32
"""See `Side.room`."""
SideName = Literal["source", "target"]
LayoutKind = Literal["none", "padded", "packed"]
"""Of a model's passes: whether its parts know where their tokens stand, and whether padding is left out."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Side:
    """The tokens of the source or of the target."""

    places: Tensor
    """(N, 4) int32: lower and upper half of the seed of a token's lane, number of its pair there, position."""
    bounds: Tensor | None
    """(R + 1) int32: row r is tokens bounds[r] to bounds[r + 1], one row behind the other. None where all are padded to
    one length; then padding counts among the tokens."""
    longest: int
    """Tokens of the longest row."""
    room: int = field(init=False)
    """The same, rounded up: what is compiled for one number serves few others, or every batch would need its own."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "room", -(-self.longest // ROOM) * ROOM)

    @property
    def positions(self) -> Tensor:
        """(N) int32: within the row."""
        return self.places[:, 3]


@dataclass(kw_only=True, slots=True, frozen=True)
class Layout:
    """Of one forward pass."""

    source: Side
    target: Side

    @property
    def is_packed(self) -> bool:
        """Whether rows stand one behind the other, without padding: then ids are (1, N)."""
        return self.source.bounds is not None

    def side(self, name: SideName) -> Side:
        """Source or target."""
        return self.source if name == "source" else self.target


class Current:
    """What a model's parts have in common: what is known of the pass that is under way."""

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.products: Mapping[str, Product] = {}
        """Of layers that are computed together, by names that who asks for them knows."""

    @contextlib.contextmanager
    def using(self, layout: Layout | None, products: Mapping[str, Product] | None = None) -> Iterator[None]:
        """Within it, a pass has this layout, and these products."""
        before = self.layout, self.products
        self.layout, self.products = layout, products or {}
        try:
            yield
        finally:
            self.layout, self.products = before
