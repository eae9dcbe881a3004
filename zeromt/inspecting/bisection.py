"""Finds which of several parts of the data causes a loss spike, by bisection over forks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

FRACTION = 0.5
"""The search goes on within a half only if leaving it out removes at least this fraction of the excess loss."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Blamed(Generic[T]):
    """The result of a bisection."""

    parts: Sequence[T]
    """The candidates that remain."""
    loss: float
    """The loss without them; the control's if nothing was narrowed down."""
    num_replays: int


def most_replays(count: int) -> int:
    """Most replays that a bisection among this many candidates takes."""
    return 1 if count == 1 else 2 * math.ceil(math.log2(count))


def bisect(
    candidates: Sequence[T], loss_without: Callable[[Sequence[T]], float], *, control: float, usual: float
) -> Blamed[T]:
    """Halve the candidates until one is left, or until omitting neither half removes half of the excess loss.

    Each step omits each half in turn, and continues with the half whose omission gives the lower loss. This finds a
    single cause; if there are several causes in different halves, those that together explain half of the excess stay
    together.

    Args:
        candidates: parts of the data, related ones next to each other.
        loss_without: the loss of the update in a fork without some of them; NaN if nothing of the update remains, in
            which case the other half is preferred.
        control: the loss in a fork without omissions.
        usual: what the loss should be.
    """
    enough = control - FRACTION * (control - usual)
    parts, loss, num_replays = list(candidates), control, 0
    while len(parts) > 1 or num_replays == 0:
        middle = (len(parts) + 1) // 2
        halves = [half for half in (parts[:middle], parts[middle:]) if half]
        losses = [loss_without(half) for half in halves]
        num_replays += len(halves)
        known = [enough if math.isnan(value) else value for value in losses]
        best = known.index(min(known))
        if known[best] > enough:
            break
        parts, loss = halves[best], losses[best]
        if len(halves) == 1:
            break
    return Blamed(parts=parts, loss=loss, num_replays=num_replays)
