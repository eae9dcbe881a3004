"""What the stream reads in a phase of a run: some of its datasets, with proportions, modifiers and weights of its own.

Weights of pairs in the loss are integers in units of 2^-24. So their sum over an update is exact, in any order and at
any number of ranks, and a weight up to 1 is exact in fp32, by which the device multiplies.
"""

import dataclasses
import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection, UserError
from data_pipeline.order.mixture import Mixture
from data_pipeline.order.randomness import Purpose, random_bits
from data_pipeline.order.stream_plan import StreamPlan
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augment import make_augmenters, settings_number
from data_pipeline.stream.batch import MicroBatch

log = logging.getLogger(__name__)

WEIGHT_ONE = 1 << 24
"""Weight 1 in units."""
MOST_WEIGHT = 1000
"""A sum over 2^28 target tokens still fits 63 bits."""
PAIRS_AT_ONCE = 1 << 20

Ids = NDArray[np.int64]


LEAST_WINDOW_PAIRS = 16_384
"""Minimum for a dataset in a mixture, whatever its proportion."""
PairWeights = float | NDArray[np.float32]
"""What the loss of all pairs of a dataset is multiplied by, or of each (pairs,)."""


def find_weights(dataset: Dataset, weight: float | str) -> tuple[PairWeights, bool]:
    """The weights of a dataset's pairs, each looked at, and whether any is above 0.

    Args:
        dataset: whose pairs.
        weight: of all pairs, or the name of a score.

    Raises:
        UserError: there is no such score, or a pair has none, or one that is not a weight.
        DataError: the score's table is corrupt.
    """
    if not isinstance(weight, str):
        return weight, bool(in_units(np.float64(weight)))
    table, has_weight = dataset.score(weight), False
    for begin in range(0, len(table), PAIRS_AT_ONCE):
        part = table[begin : begin + PAIRS_AT_ONCE]
        is_weight = (part >= 0) & (part <= MOST_WEIGHT)  # NaN is neither
        if not is_weight.all():
            first = int(np.argmin(is_weight))
            raise UserError(
                f"stream.datasets: loss_weight {weight} of {dataset.location}: pair {begin + first} has "
                f"{part[first]:g}; allowed is 0 to {MOST_WEIGHT} for every pair: prepare a score that is a weight, or "
                f"drop what has none (prepare.filters=[{{kind: threshold, score: {weight}, at_least: 0}}])"
            )
        has_weight |= bool(in_units(part).any())
    return table, has_weight


def in_units(weights: NDArray[np.floating] | np.floating) -> Ids:
    """Weights, rounded to units of 2^-24."""
    units: Ids = np.rint(np.asarray(weights, dtype=np.float64) * WEIGHT_ONE).astype(np.int64)
    return units


class StreamPhase(NamedTuple):
    """What a phase of a run reads."""

    numbers: Sequence[int]
    """Numbers of its datasets among all of the run."""
    weights: Sequence[float | None]
    """One for each, or None for each."""
    section: StreamSection
    """Budgets, temperature and modifiers; K and the budgets are those of all phases."""
    loss_weights: Sequence[float | str | None] = ()
    """Of its datasets' pairs, `DatasetSource.loss_weight`; empty: none has any."""


class PhaseData(NamedTuple):
    """A phase that is planned."""

    number: int
    """From 0."""
    numbers: tuple[int, ...]
    """Numbers of its datasets among all of the run."""
    datasets: tuple[Dataset, ...]
    first_ids: tuple[int, ...]
    """The id of each dataset's first pair: ids are counted over all datasets of the run."""
    section: StreamSection
    mixture: Mixture
    plans: list[StreamPlan]
    seed: int
    """Seed of its order and its modifiers. In two phases the same pass over a dataset has two orders."""
    augment: int | None
    """Hash of the modifiers' settings, `settings_number`; None where there are none."""
    pair_weights: Mapping[int, PairWeights]
    """By number of the dataset among all of the run; of those that have weights."""

    def weighted(self, micro_batch: MicroBatch) -> MicroBatch:
        """The micro-batch with the weights of its pairs, if its dataset has any."""
        if (weights := self.pair_weights.get(micro_batch.dataset)) is None:
            return micro_batch
        pairs = micro_batch.pair_ids - self.first_ids[self.numbers.index(micro_batch.dataset)]
        of_pairs = weights[pairs] if isinstance(weights, np.ndarray) else np.full(len(pairs), weights)
        return dataclasses.replace(micro_batch, weights=in_units(of_pairs))

    @classmethod
    def of(cls, number: int, phase: StreamPhase, datasets: Sequence[Dataset], *, seed: int) -> "PhaseData":
        """Plan a phase; nothing is read of its pairs but their lengths.

        Args:
            number: of the phase, from 0.
            phase: which.
            datasets: all of the run.
            seed: the run's seed, which is that of the first phase.

        Raises:
            UserError: a pair fits no micro-batch and such pairs are refused, a modifier cannot be used, or a pair has
                no weight.
        """
        first_ids = list(itertools.accumulate((dataset.num_pairs for dataset in datasets), initial=0))
        own = [datasets[one] for one in phase.numbers]
        mixture = Mixture.of(
            [dataset.num_pairs for dataset in own],
            phase.weights,
            temperature=phase.section.temperature,
            num_lanes=phase.section.micro_batches,
        )
        seed = int(random_bits(1, seed, Purpose.PHASE, number)[0]) if number else seed
        plans = make_plans(own, phase.section, mixture, seed=seed)
        for dataset, plan in zip(own, plans, strict=True):
            _check_sizes(dataset, plan, phase.section)
        make_augmenters(own, phase.section, seed=seed)  # refuses what cannot be, before anything is trained
        return cls(
            number=number,
            numbers=tuple(phase.numbers),
            datasets=tuple(own),
            first_ids=tuple(first_ids[one] for one in phase.numbers),
            section=phase.section,
            mixture=mixture,
            plans=plans,
            seed=seed,
            augment=settings_number(phase.section, len(own)),
            pair_weights=_pair_weights(phase, own),
        )


def _pair_weights(phase: StreamPhase, datasets: Sequence[Dataset]) -> dict[int, PairWeights]:
    """Those of a phase's datasets that have any, by the datasets' numbers.

    Raises:
        UserError: a pair has none, or all have weight 0.
    """
    given = zip(phase.numbers, datasets, phase.loss_weights or [None] * len(datasets), strict=True)
    by_number = {number: find_weights(dataset, weight) for number, dataset, weight in given if weight is not None}
    if len(by_number) == len(datasets) and not any(has_weight for _, has_weight in by_number.values()):
        names = ", ".join(dataset.location for dataset in datasets)
        raise UserError(f"stream.datasets: loss_weight of {names}: every pair has weight 0; give one above 0")
    return {number: weights for number, (weights, _) in by_number.items()}


def check_tokenizers(datasets: Sequence[Dataset]) -> None:
    """Refuse datasets that have different tokenizers.

    Raises:
        UserError: naming the first that has another.
    """
    first = datasets[0]
    for other in datasets[1:]:
        if other.tokenizer_fingerprint != first.tokenizer_fingerprint:
            raise UserError(
                f"stream.datasets: {other.location} has another tokenizer than {first.location}: "
                f"{other.tokenizer_fingerprint[:12]}, not {first.tokenizer_fingerprint[:12]}; use one for all: "
                f"prepare the others again with `zeromt prepare CONFIG --tokenizer-of {first.location}`"
            )


def _check_sizes(dataset: Dataset, plan: StreamPlan, section: StreamSection) -> None:
    """Look for pairs that fit no micro-batch.

    Raises:
        UserError: there are some and they are refused, or there is nothing else.
    """
    count, first = plan.oversized()
    if first is None:
        return
    padded = plan.budget.padded(dataset.lengths[first : first + 1])[0].tolist()
    side = "source" if padded[0] > section.source_tokens else "target"
    needed, budget = padded[side == "target"], getattr(section, f"{side}_tokens")
    what = f"stream.{side}_tokens: pair {first} of {dataset.location} takes {needed} tokens, {needed} > {budget}"
    if section.on_oversized_pair == "error":
        raise UserError(f"{what} ({count} such pairs); allowed is {needed} or more, or stream.on_oversized_pair=drop")
    if count == dataset.num_pairs:
        raise UserError(f"{what}, and no other pair fits; raise the budget")
    log.warning("%s; %d such pairs are left out", what, count)


def make_plans(datasets: Sequence[Dataset], section: StreamSection, mixture: Mixture, *, seed: int) -> list[StreamPlan]:
    """The plan of each dataset.

    In a mixture the pairs of `section.window_pairs` are divided among the datasets as those of an update are, so that
    memory does not grow with their number; each has at least 16,384, or a block, that its batches are not padded more.
    """
    if mixture.is_single:
        return [StreamPlan(datasets[0].lengths, datasets[0].blocks, section, seed=seed)]
    plans = []
    for number, dataset in enumerate(datasets):
        least = max(LEAST_WINDOW_PAIRS, int(dataset.blocks["pairs"].max()))
        window_pairs = min(section.window_pairs, max(least, mixture.part(section.window_pairs, number)))
        own = dataclasses.replace(section, window_pairs=window_pairs)
        place = {"dataset": number, "lane_pairs": mixture.lane_pairs}
        plans.append(StreamPlan(dataset.lengths, dataset.blocks, own, seed=seed, **place))
    return plans
