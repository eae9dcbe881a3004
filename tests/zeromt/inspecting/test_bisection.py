"""The search for what is behind a spike: what it finds, in how many replays, and when it stops."""

import math
from collections.abc import Sequence

import pytest

from zeromt.inspecting.cause import bisect, most_replays


class Planted:
    """A loss of 3 that each part adds to."""

    def __init__(self, **excess: float) -> None:
        self._excess = excess
        self.asked: list[list[str]] = []

    @property
    def control(self) -> float:
        return 3.0 + sum(self._excess.values())

    def without(self, some: Sequence[str]) -> float:
        self.asked.append(list(some))
        return 3.0 + sum(excess for name, excess in self._excess.items() if name not in some)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 64, 1000])
def test_one_cause_is_found_wherever_it_is(count: int) -> None:
    names = [f"n{number}" for number in range(count)]
    for guilty in {names[0], names[count // 2], names[-1]}:
        planted = Planted(**{guilty: 2.0})
        found = bisect(names, planted.without, control=planted.control, usual=3.0)
        assert list(found.parts) == [guilty]
        assert found.loss == 3.0
        assert found.num_replays == len(planted.asked) <= most_replays(count)


def test_of_a_large_and_a_small_cause_the_large_one_is_found() -> None:
    names = list("abcdefgh")
    planted = Planted(b=2.0, g=0.5)
    assert list(bisect(names, planted.without, control=planted.control, usual=3.0).parts) == ["b"]


def test_what_only_together_explains_it_stays_together() -> None:
    names = list("abcdefgh")
    planted = Planted(a=0.7, b=0.65, c=0.65)
    found = bisect(names, planted.without, control=planted.control, usual=3.0)
    assert list(found.parts) == ["a", "b"], "either of them alone takes less than half of the excess away"


def test_without_a_cause_all_stays() -> None:
    names = list("abcd")
    found = bisect(names, lambda some: 5.0, control=5.0, usual=3.0)
    assert (list(found.parts), found.loss, found.num_replays) == (names, 5.0, 2)


def test_where_nothing_remains_of_the_update_the_other_half_goes_first() -> None:
    """The update itself is of a; the weights were spoilt by d before it."""
    names = list("abcd")

    def without(some: Sequence[str]) -> float:
        return math.nan if "a" in some else 3.0 if "d" in some else 5.0

    assert list(bisect(names, without, control=5.0, usual=3.0).parts) == ["d"]
    assert list(bisect(names, lambda some: math.nan if "a" in some else 5.0, control=5.0, usual=3.0).parts) == ["a"]
