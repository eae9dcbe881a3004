"""How often to save, and what failures cost.

Young (1974): the interval is sqrt(2 d M), with d the time that a save takes from the training and M the mean time
between failures. Daly (2006) adds the next terms, and gives the expected time of a run that fails at random.
"""

import math
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Failures:
    """What is known of failures and saves, in seconds."""

    mtbf: float
    """Between two failures anywhere; infinite where there are none."""
    save: float
    """That the training stands still for a save."""
    restart: float
    """From a failure to the first new update, work that is done again apart."""


def young(failures: Failures) -> float:
    """Seconds of training between two saves, to first order."""
    return math.sqrt(2 * failures.save * failures.mtbf)


def daly(failures: Failures) -> float:
    """Seconds of training between two saves: Daly's estimate of higher order; M where a save takes longer than 2 M."""
    if failures.save >= 2 * failures.mtbf:
        return failures.mtbf
    ratio = failures.save / (2 * failures.mtbf)
    return young(failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - failures.save


def goodput(interval: float, failures: Failures) -> float:
    """Fraction of the time in which lasting updates are made: interval / (M e^(R/M) (e^((interval + d)/M) - 1))."""
    if math.isinf(failures.mtbf):
        return interval / (interval + failures.save)
    exponent = (interval + failures.save) / failures.mtbf
    if exponent + failures.restart / failures.mtbf > 700:  # e^700 is the end of floats: nothing gets done
        return 0.0
    expected = failures.mtbf * math.exp(failures.restart / failures.mtbf) * math.expm1(exponent)
    return interval / expected
