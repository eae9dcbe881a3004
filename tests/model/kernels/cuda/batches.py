"""Micro-batches with padding, as the reader makes them."""

import numpy as np

from data_pipeline.stream.batch import MicroBatch, Ragged, collate


def lane(number: int, *, rows: int, longest: int = 9, vocab: int = 13) -> MicroBatch:
    """Of a lane: rows of random lengths, padded."""
    draw = np.random.default_rng(number)
    sides = [[draw.integers(3, vocab, draw.integers(0, longest)).tolist() for _ in range(rows)] for _ in range(2)]
    return collate(number, np.arange(rows), Ragged.of(sides[0]), Ragged.of(sides[1]), 4)
