"""The interval between saves and the goodput, against a simulation of failures."""

import math
import random

import pytest

from zeromt.planning.estimate import Failures, daly, goodput, young

CASES = [
    Failures(mtbf=3600.0, save=20.0, restart=60.0),
    Failures(mtbf=36_000.0, save=300.0, restart=600.0),
    Failures(mtbf=1000.0, save=100.0, restart=0.0),
]


def simulate(interval: float, failures: Failures, *, segments: int, seed: int) -> float:
    """Fraction of useful time when failures come at random, during saves and restarts too."""
    draw = random.Random(seed)
    time, left = 0.0, draw.expovariate(1 / failures.mtbf)
    for _ in range(segments):
        needed = interval + failures.save
        while left < needed:  # a failure: the segment is begun again after a restart
            time += left
            left = draw.expovariate(1 / failures.mtbf)
            needed = failures.restart + interval + failures.save
        time, left = time + needed, left - needed
    return segments * interval / time


@pytest.mark.parametrize("failures", CASES)
@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_goodput_is_that_of_a_simulation(failures: Failures, factor: float) -> None:
    interval = factor * daly(failures)
    simulated = simulate(interval, failures, segments=40_000, seed=1)
    # Daly's restarts can fail too, which costs e^(R/M) in place of 1 + R/M at most
    assert goodput(interval, failures) == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize("failures", CASES)
def test_no_interval_is_much_better_than_dalys(failures: Failures) -> None:
    best = max(goodput(daly(failures) * 1.02**n, failures) for n in range(-100, 101))
    assert goodput(daly(failures), failures) > 0.999 * best
    assert goodput(daly(failures), failures) >= goodput(young(failures), failures) - 1e-6


@pytest.mark.parametrize(("mtbf", "published"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_own_examples(mtbf: float, published: float) -> None:
    """Daly (2006), figures 3 to 5, in minutes: a save takes 5 minutes, a restart 10."""
    assert daly(Failures(mtbf=mtbf, save=5, restart=10)) == pytest.approx(published, rel=0.006)


def test_the_ends() -> None:
    never = Failures(mtbf=math.inf, save=10.0, restart=60.0)
    assert goodput(90.0, never) == pytest.approx(0.9)
    hopeless = Failures(mtbf=10.0, save=30.0, restart=60.0)
    assert daly(hopeless) == 10.0
    assert goodput(1e6, hopeless) == 0.0
    assert young(CASES[0]) == pytest.approx(math.sqrt(2 * 20 * 3600))
