"""Micro-batches with the lengths of a corpus."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.device.work import MAX_PIECES, MEDIAN_PIECES, SIGMA
from data_pipeline.order.windows import Budget, plan_window

LENGTH_MULTIPLE = 8
NUM_PAIRS = 100_000


def micro_batches(tokens: int) -> list[NDArray[np.int64]]:
    """Lengths (rows, 2), EOS included, of the pairs of each micro-batch of `tokens` padded tokens per side.

    Batches lengths distributed like WMT14 English-German as the trainer does.
    """
    rng = np.random.default_rng(1)
    source = rng.lognormal(np.log(MEDIAN_PIECES), SIGMA, NUM_PAIRS)
    sides = (source, source * rng.lognormal(0.0, 0.15, NUM_PAIRS))
    lengths = np.stack([side.clip(1, MAX_PIECES).astype(np.uint16) for side in sides], axis=1)
    budget = Budget(source_tokens=tokens, target_tokens=tokens, max_rows=tokens, length_multiple=LENGTH_MULTIPLE)
    plan = plan_window(lengths, budget, seed=1, place=(0, 0, 0, 0), before=None)
    return [lengths[plan.micro_batch(number)].astype(np.int64) + 1 for number in range(len(plan))]


def sampled(tokens: int, number: int) -> list[NDArray[np.int64]]:
    """`number` of `micro_batches`, at even quantiles of their rows: together they have the corpus's lengths."""
    batches = sorted(micro_batches(tokens), key=len)
    return [batches[int(len(batches) * (i + 0.5) / number)] for i in range(number)]
