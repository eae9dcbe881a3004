"""The best interval between saves, and the goodput with failures.

Young (1974): the interval is sqrt(2 d M), where d is the time that training pauses for a save and M the mean time
between failures. Daly (2006) adds higher-order terms, and gives the expected duration of a run with random failures.
"""

import math
from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Failures:
    """Times of failures and saves, in seconds."""

    mtbf: float
    """Mean time between two failures of any part; infinite if there are none."""
    save: float
    """Time that training pauses for a save."""
    restart: float
    """Time from a failure until training continues, without the updates that are done again."""


def young(failures: Failures) -> float:
    """Seconds of training between two saves by Young's first-order formula."""
    return math.sqrt(2 * failures.save * failures.mtbf)


def daly(failures: Failures) -> float:
    """Seconds of training between two saves by Daly's higher-order formula; M if a save takes 2 M or longer."""
    if failures.save >= 2 * failures.mtbf:
        return failures.mtbf
    ratio = failures.save / (2 * failures.mtbf)
    return young(failures) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - failures.save


def goodput(interval: float, failures: Failures) -> float:
    """Fraction of time that goes into updates that last: interval / (M e^(R/M) (e^((interval + d)/M) - 1))."""
    if math.isinf(failures.mtbf):
        return interval / (interval + failures.save)
    exponent = (interval + failures.save) / failures.mtbf
    if exponent + failures.restart / failures.mtbf > 700:  # exp would overflow: the run makes no progress
        return 0.0
    expected = failures.mtbf * math.exp(failures.restart / failures.mtbf) * math.expm1(exponent)
    return interval / expected
