"""The filters of pairs by their scores, and by a program of the user's."""

import dataclasses
import functools
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Corpus, Judge, JudgingFilter, Pairs, component
from configs.fields import PathText, Positive, PositiveFloat


@component("filter", "threshold")
class Threshold(JudgingFilter):
    """Drops pairs whose score is outside of bounds."""

    score: str
    """Name of the score, in prepare.scores or prepare.train."""
    at_least: float | None = None
    """The lowest score that is kept."""
    at_most: float | None = None
    """The highest score that is kept."""
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
    def judge(self, pairs: Pairs) -> tuple[list[str], list[str], Sequence[int]]:
        import numpy as np

        scores, is_bad = pairs.scores[self.score], np.full(len(pairs.sources), False)
        if self.at_least is not None:  # compared as float32, which the score 0.7 is
            is_bad |= scores < np.float32(self.at_least)
        if self.at_most is not None:
            is_bad |= scores > np.float32(self.at_most)
        if self.without == "drop":
            is_bad |= np.isnan(scores)
        return pairs.sources, pairs.targets, np.flatnonzero(is_bad).tolist()


if TYPE_CHECKING:
    from data_pipeline.preparation.programs import Respondent


@component("filter", "command")
class CommandFilter(JudgingFilter):
    """A program that keeps, drops or changes pairs: see docs/data.md. One runs for each encoding process."""

    decides_nothing: ClassVar[frozenset[str]] = frozenset({"batch", "seconds"})
    command: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments; no shell. It reads pairs and answers as lines of JSON. What it says of a pair may
    depend on that pair alone."""
    depends: list[PathText] = dataclasses.field(default_factory=list)
    """Files and folders that its answers depend on, as the program itself: with other content it is another dataset."""
    batch: Positive = 256
    """Pairs of a batch; the program has up to two at once."""
    seconds: PositiveFloat = 600.0
    """Longest wait for its next answer, loading a model included."""

    @override
    def depends_on(self) -> Sequence[str]:
        return self.depends

    @override
    def open(self, corpus: Corpus, place: str) -> Judge:
        from data_pipeline.preparation.programs import Respondent, check_program

        place = f"{place}.command"
        check_program(self.command, place)
        program = Respondent(self.command, place, batch=self.batch, seconds=self.seconds)
        judge = functools.partial(_judge, program)
        weakref.finalize(judge, program.close)
        return judge


def _judge(program: "Respondent", pairs: Pairs) -> tuple[list[str], list[str], Sequence[int]]:
    sources, targets, bad = list(pairs.sources), list(pairs.targets), []
    for row, answer in program.ask(pairs, range(len(sources))):
        changed = {side: answer[side] for side in ("source", "target") if side in answer}
        keep = answer.get("keep", True if changed else None)
        if not isinstance(keep, bool) or not all(isinstance(text, str) for text in changed.values()):
            said = str({name: value for name, value in answer.items() if name != "id"})[:100]
            allowed = "keep, true or false, or source and target"
            raise program.refused(pairs, row, said, allowed)
        sources[row] = changed.get("source", sources[row])
        targets[row] = changed.get("target", targets[row])
        if not keep:
            bad.append(row)
    return sources, targets, bad
