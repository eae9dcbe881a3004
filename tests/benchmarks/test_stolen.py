"""Rates without the updates that a virtual machine's host took the cores from."""

import time
from itertools import pairwise

import pytest

from benchmarks.common.stolen import MIN_UPDATES, StolenTime, fraction_between, sample, undisturbed
from benchmarks.training.train import ratio

MOMENTS = [(10.0, 1000.0, 50.0), (11.0, 1200.0, 50.0), (12.0, 1400.0, 150.0), (13.0, 1600.0, 160.0)]


@pytest.mark.parametrize(
    ("begin", "end", "fraction"),
    [
        (None, None, 110 / 600),
        (10.0, 11.0, 0.0),
        (10.2, 10.9, 0.0),
        (10.9, 11.1, 0.25),  # from the look before to the look after
        (11.0, 12.0, 0.5),
        (12.5, 99.0, 0.05),
        (1.0, 10.5, 0.0),
        (13.0, 14.0, 0.0),
    ],
)
def test_fraction(begin: float | None, end: float | None, fraction: float) -> None:
    assert fraction_between(MOMENTS, begin, end) == pytest.approx(fraction)


class Pretended(StolenTime):
    """Half of the time is stolen in the last two of twelve updates."""

    def __init__(self) -> None:
        super().__init__()
        self._moments = [(float(n), 100.0 * n, 50.0 * max(0, n - MIN_UPDATES)) for n in range(MIN_UPDATES + 3)]


def test_undisturbed_updates() -> None:
    ends = [float(n) for n in range(MIN_UPDATES + 3)]
    counts = [10] * MIN_UPDATES + [3, 4]
    found = undisturbed({"ends": ends, "counts": counts}, Pretended())
    assert found["undisturbed_updates"] == MIN_UPDATES
    assert found["undisturbed_tokens_per_second"] == pytest.approx(10.0)
    assert found["stolen"] == pytest.approx(100 / 1200)
    few = undisturbed({"ends": ends[1:], "counts": counts[1:]}, Pretended())
    assert few["undisturbed_updates"] == MIN_UPDATES - 1
    assert "undisturbed_tokens_per_second" not in few
    assert undisturbed({"tokens_per_second": 3.0}, Pretended()) == {"stolen": pytest.approx(100 / 1200)}


def test_like_is_compared_with_like() -> None:
    whole, both = {"tokens_per_second": 6.0}, {"tokens_per_second": 4.0, "undisturbed_tokens_per_second": 8.0}
    assert ratio(both, whole) == pytest.approx(4 / 6)
    assert ratio(both, {"tokens_per_second": 1.0, "undisturbed_tokens_per_second": 4.0}) == 2.0


def test_this_machine() -> None:
    with StolenTime() as stolen:
        time.sleep(0.2)
        middle = sample()
    assert 0.0 <= stolen.fraction() <= 1.0
    assert 0.0 <= stolen.fraction(middle[0] - 0.1, middle[0]) <= 1.0
    assert middle[1] > 0
    assert all(earlier[0] < later[0] for earlier, later in pairwise(stolen._moments))
