"""Which of several parts of the data is behind a spike of the loss, by bisection over forks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 0.5
"""Of the excess of the loss, that leaving a half out must take away for the search to go on within it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Blamed(Generic[T]):
    """What a bisection came to."""

    parts: Sequence[T]
    """Of the candidates, those that are left."""
    loss: float
    """Without them; the control where nothing was narrowed down."""
    num_replays: int


def most_replays(count: int) -> int:
    """Of a bisection among so many candidates."""
    return 1 if count == 1 else 2 * math.ceil(math.log2(count))


def bisect(
    candidates: Sequence[T], loss_without: Callable[[Sequence[T]], float], *, control: float, usual: float
) -> Blamed[T]:
    """Halve what is left out until one is left, or until neither half takes half of the excess of the loss away.

    Each step leaves out either half, and goes on with the one without which the loss is lower. So a single cause is
    found; of several in different halves, those that explain half of the excess together stay together.

    Args:
        candidates: parts of the data, in an order in which neighbours belong together.
        loss_without: the loss of the update in a fork without some of them; NaN where nothing of the update remains,
            which tells the least: the other half goes before it.
        control: the loss in a fork that leaves nothing out.
        usual: what the loss should be.
    """
    enough = control - SHARE * (control - usual)
    parts, loss, num_replays = list(candidates), control, 0
    while len(parts) > 1 or num_replays == 0:
        middle = (len(parts) + 1) // 2
        halves = [half for half in (parts[:middle], parts[middle:]) if half]
        losses = [loss_without(half) for half in halves]
        num_replays += len(halves)
        known = [enough if math.isnan(found) else found for found in losses]
        best = known.index(min(known))
        if known[best] > enough:
            break
        parts, loss = halves[best], losses[best]
        if len(halves) == 1:
            break
    return Blamed(parts=parts, loss=loss, num_replays=num_replays)
