"""The filter of pairs by their scores."""

import dataclasses
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from typing_extensions import override

from configs import UserError
from configs.components import Corpus, Judge, JudgingFilter, Pairs, component


@component("filter", "threshold")
class Threshold(JudgingFilter):
    """Drops pairs whose score is outside of bounds."""

    score: str
    """Name of the score, in prepare.scores or prepare.train."""
    at_least: float | None = None
    """The lowest score that is kept."""
    at_most: float | None = None
    """The highest score that is kept."""
    datasets: list[str] = dataclasses.field(default_factory=list)
    """Patterns such as paracrawl*: names of the corpus files, of either side, whose pairs are meant; empty for all."""
    without: Literal["drop", "keep"] = "drop"
    """What becomes of a pair that has no such score."""

    @override
    def problems(self) -> Iterator[str]:
        if self.at_least is None and self.at_most is None:
            yield "at_least: null, and no at_most; give one of them, or both"
        elif self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            yield f"at_least: {self.at_least:g} with at_most={self.at_most:g}, between which is nothing"

    @override
    def score_names(self) -> Sequence[str]:
        return (self.score,)

    @override
    def report_name(self) -> str:
        return f"threshold of {self.score}"

    @override
    def open(self, corpus: Corpus, place: str) -> Judge:
        for pattern in self.datasets:
            if not any(fnmatchcase(name, pattern) for name in corpus.files):
                raise UserError(
                    f"{place}.datasets: {pattern!r}: no corpus file has such a name ({', '.join(corpus.files)})"
                )
        return self.judge

    @override
    def judge(self, pairs: Pairs) -> tuple[list[str], list[str], Sequence[int]]:
        if self.datasets and not any(fnmatchcase(name, pattern) for name in pairs.files for pattern in self.datasets):
            return pairs.sources, pairs.targets, ()
        import numpy as np

        scores, is_bad = pairs.scores[self.score], np.full(len(pairs.sources), False)
        if self.at_least is not None:  # compared as float32, which the score 0.7 is
            is_bad |= scores < np.float32(self.at_least)
        if self.at_most is not None:
            is_bad |= scores > np.float32(self.at_most)
        if self.without == "drop":
            is_bad |= np.isnan(scores)
        return pairs.sources, pairs.targets, np.flatnonzero(is_bad).tolist()
