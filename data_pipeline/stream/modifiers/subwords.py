"""Subword regularisation: words are cut into other pieces each time that they are read."""

import bisect
import itertools
import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, SubwordModifier, component
from configs.components.data import Chance


@component("modifier", "bpe_dropout")
class BpeDropout(SubwordModifier):
    """BPE-dropout (Provilkov et al., 2020, algorithm 1): at each step of a word's merging each possible merge is
    dropped with a probability. Unlike theirs, a word has 64 segmentations a run, and one is drawn each time."""

    model_type: ClassVar[str] = "bpe"
    dropout: Chance = 0.1
    """p; 0 gives the plain pieces, 1 characters."""

    @override
    def cut(self, word: str, scores: Mapping[str, float], draws: Draws) -> list[str]:
        pieces = list(word)
        merges = [scores.get(left + right) for left, right in itertools.pairwise(pieces)]
        while True:
            best, place = -math.inf, -1
            for number, score in enumerate(merges):
                if score is not None and score > best and not draws.chance(self.dropout):
                    best, place = score, number
            if place < 0:
                return pieces
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            near = slice(max(place - 1, 0), place + 2)
            merges[near] = [scores.get(left + right) for left, right in itertools.pairwise(pieces[near])]


@component("modifier", "unigram_sampling")
class UnigramSampling(SubwordModifier):
    """Unigram sampling (Kudo, 2018): a segmentation x of a word with a probability in proportion to P(x) ** alpha, over
    all segmentations (l is infinite). A word has 64 a run, and one is drawn each time."""

    model_type: ClassVar[str] = "unigram"
    alpha: Annotated[float, Field(ge=0, le=10)] = 0.2
    """0 gives all segmentations alike, a large one the plain pieces."""

    @override
    def cut(self, word: str, scores: Mapping[str, float], draws: Draws) -> list[str]:
        """Forward filtering, backward sampling; a character that is not a piece ends the word's lattice."""
        total = [0.0]  # logarithms, by place in the word
        arriving: list[list[float]] = [[]]
        for end in range(1, len(word) + 1):
            arcs = [total[begin] + self.alpha * scores.get(word[begin:end], -math.inf) for begin in range(end)]
            most = max(arcs)
            chances = [0.0 if most == -math.inf else math.exp(arc - most) for arc in arcs]
            arriving.append(list(itertools.accumulate(chances)))
            total.append(most + math.log(sum(chances)) if most > -math.inf else -math.inf)
        if total[-1] == -math.inf:
            return [word]
        pieces, end = [], len(word)
        while end:
            sums = arriving[end]
            point = draws.bits() / 2**64 * sums[-1]
            begin = bisect.bisect_right(sums, point)
            pieces.append(word[begin:end])
            end = begin
        return pieces[::-1]
