"""Subword regularisation written out plainly, after the papers, with numpy's generator: what ours is held against."""

import itertools

import numpy as np


def bpe_dropout(word: str, merges: dict[tuple[str, str], int], p: float, random: np.random.Generator) -> list[str]:
    """Provilkov et al. (2020), algorithm 1.

    Args:
        word: to be cut.
        merges: by left and right part, the place in the table of merges.
        p: probability that a merge is dropped.
        random: the draws.
    """
    current = list(word)
    while True:
        possible = [
            (merges[pair], place)
            for place, pair in enumerate(itertools.pairwise(current))
            if pair in merges and random.random() >= p
        ]
        if not possible:
            return current
        _, place = min(possible)
        current[place : place + 2] = [current[place] + current[place + 1]]


def segmentations(word: str, scores: dict[str, float], alpha: float) -> dict[tuple[str, ...], float]:
    """Every segmentation of a word and its probability (Kudo, 2018, with l infinite), by recursion."""

    def walk(rest: str) -> list[tuple[tuple[str, ...], float]]:
        if not rest:
            return [((), 0.0)]
        return [
            ((rest[:n], *pieces), scores[rest[:n]] + score)
            for n in range(1, len(rest) + 1)
            if rest[:n] in scores
            for pieces, score in walk(rest[n:])
        ]

    found = walk(word)
    weights = np.exp(alpha * np.array([score for _, score in found]))
    return dict(zip((pieces for pieces, _ in found), (weights / weights.sum()).tolist(), strict=True))
