"""Histograms of scores by corpus file, in bins whose edges are round numbers."""

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from data_pipeline.preparation.report import ScoreCounts, ScoreReport
from data_pipeline.preparation.scoring.numbers import Scores

BINS = 20
OUTSIDE = 0.005
"""Fraction of the scores on either end that may lie outside the edges, so that few odd ones do not widen the bins."""
SAMPLE = 1 << 20
"""Scores by which the edges are chosen, drawn evenly."""


def histogram(scores: Callable[[], Iterator[tuple[str, Scores]]], total: int) -> ScoreReport:
    """Count scores.

    Args:
        scores: gives the file and the scores of each part of the corpus, in order, as often as it is called.
        total: number of pairs.
    """
    step = max(1, total // SAMPLE)
    sample = np.concatenate([np.empty(0, np.float32), *(part[::step] for _, part in scores())])
    edges = _edges(sample[~np.isnan(sample)])
    limits = np.array([-math.inf, *edges], dtype=np.float32)
    files: dict[str, NDArray[np.int64]] = {}
    without: dict[str, int] = {}
    for file, part in scores():
        there = part[~np.isnan(part)]
        bins = np.searchsorted(limits, there, side="right") - 1
        files[file] = files.get(file, 0) + np.bincount(bins, minlength=len(limits))
        without[file] = without.get(file, 0) + len(part) - len(there)
    counts = {file: found.tolist() for file, found in files.items()}
    return ScoreReport(
        edges=edges,
        files={
            file: ScoreCounts(below=found[0], counts=found[1:], without=without[file]) for file, found in counts.items()
        },
    )


def _edges(scores: Scores) -> list[float]:
    """Round numbers, some twenty steps of 1, 2 or 5 times a power of ten, that cover almost all scores."""
    if not len(scores):
        return [0.0]
    low, high = (float(value) for value in np.quantile(scores.astype(np.float64), [OUTSIDE, 1 - OUTSIDE]))
    width = (high - low) / BINS or max(abs(high), 1.0) / BINS
    power = math.floor(math.log10(width))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * 10.0**power >= width * (1 - 1e-9))
    step = factor * 10.0**power
    first, last = math.floor(low / step + 1e-6), max(math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6) - 1)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
