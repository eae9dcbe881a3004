"""The weights of a dataset's pairs in the loss: a number for all of them, or a score of each.

Weights are integers in units of 2^-24. So their sum over an update is exact, in any order and at any number of ranks,
and a weight up to 1 is exact in fp32, by which the device multiplies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from data_pipeline.prepared.dataset import Dataset

WEIGHT_ONE = 1 << 24
"""Weight 1 in units."""
MOST_WEIGHT = 1000
"""A sum over 2^28 target tokens still fits 63 bits."""
PAIRS_AT_ONCE = 1 << 20

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairWeights:
    """What the loss of each pair of a dataset is multiplied by."""

    weight: float | NDArray[np.float32]
    """Of all pairs, or of each (pairs,)."""
    name: str
    """The score, or the number, for people."""
    mean: float
    """Over the pairs."""
    num_zero: int
    """Pairs of weight 0."""

    @classmethod
    def of(cls, dataset: Dataset, weight: float | str) -> "PairWeights":
        """Find them, and look at each.

        Args:
            dataset: whose pairs.
            weight: of all pairs, or the name of a score.

        Raises:
            UserError: there is no such score, or a pair has none, or one that is no weight.
            DataError: the score's table is corrupt.
        """
        if not isinstance(weight, str):
            num_zero = dataset.num_pairs if in_units(np.float64(weight)) == 0 else 0
            return cls(weight=weight, name=f"{weight:g}", mean=weight, num_zero=num_zero)
        table, units, num_zero = dataset.score(weight), 0, 0
        for begin in range(0, len(table), PAIRS_AT_ONCE):
            part = table[begin : begin + PAIRS_AT_ONCE]
            is_weight = (part >= 0) & (part <= MOST_WEIGHT)  # NaN is neither
            if not is_weight.all():
                first = int(np.argmin(is_weight))
                raise UserError(_refusal(dataset, weight, begin + first, float(part[first])))
            of_part = in_units(part)
            units, num_zero = units + int(of_part.sum()), num_zero + int(np.count_nonzero(of_part == 0))
        mean = units / WEIGHT_ONE / max(len(table), 1)
        return cls(weight=table, name=f"the score {weight}", mean=mean, num_zero=num_zero)

    def units(self, pairs: Ids) -> Ids:
        """Of some pairs (B,), in units of 2^-24."""
        if isinstance(self.weight, (int, float)):
            return np.full(len(pairs), in_units(np.float64(self.weight)))
        return in_units(self.weight[pairs])


def in_units(weights: NDArray[np.floating] | np.floating) -> Ids:
    """Weights, rounded to units of 2^-24."""
    units: Ids = np.rint(np.asarray(weights, dtype=np.float64) * WEIGHT_ONE).astype(np.int64)
    return units


def _refusal(dataset: Dataset, name: str, pair: int, score: float) -> str:
    where = f"stream.datasets: loss_weight {name} of {dataset.location}: pair {pair}"
    if np.isnan(score):
        return (
            f"{where} has no such score; prepare the dataset with prepare.filters=[{{kind: threshold, score: {name}, "
            "at_least: 0}], or give every pair one"
        )
    return f"{where} has {score:g}; allowed is 0 to {MOST_WEIGHT}: prepare a score that is a weight"
