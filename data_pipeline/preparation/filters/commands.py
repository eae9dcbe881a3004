"""The filter that is a program of the user's."""

import dataclasses
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import Corpus, Judge, JudgingFilter, Pairs, component
from configs.fields import PathText, Positive, PositiveFloat

if TYPE_CHECKING:
    from data_pipeline.preparation.asking import Respondents


@component("filter", "command")
class CommandFilter(JudgingFilter):
    """A program that keeps, drops or changes pairs: see docs/data.md. One runs beside each encoding process."""

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
        from data_pipeline.preparation.asking import check_program

        check_program(self.command, f"{place}.command")
        return _Judge(self, f"{place}.command")


class _Judge:
    """Starts the program with the first pairs, so that one that is opened for a check alone starts nothing."""

    def __init__(self, filter_: CommandFilter, place: str) -> None:
        self._filter, self._place = filter_, place
        self._programs: Respondents | None = None

    def __call__(self, pairs: Pairs) -> tuple[list[str], list[str], Sequence[int]]:
        from data_pipeline.preparation.asking import Question, Respondents

        if self._programs is None:
            given = self._filter
            self._programs = Respondents(
                given.command, self._place, processes=1, batch=given.batch, seconds=given.seconds
            )
            weakref.finalize(self, self._programs.close)
        sources, targets, bad = list(pairs.sources), list(pairs.targets), []
        for question, answer in self._programs.ask(Question(pairs, row) for row in range(len(sources))):
            changed = {side: answer[side] for side in ("source", "target") if side in answer}
            keep = answer.get("keep", True if changed else None)
            if not isinstance(keep, bool) or not all(map(_is_line, changed.values())):
                said = str({name: value for name, value in answer.items() if name != "id"})[:100]
                raise self._programs.refused(
                    question, said, "keep, true or false, or source and target, of one line each"
                )
            sources[question.row] = changed.get("source", sources[question.row])
            targets[question.row] = changed.get("target", targets[question.row])
            if not keep:
                bad.append(question.row)
        return sources, targets, bad


def _is_line(text: Any) -> bool:
    """Whether it is text that may stand in a line of a file."""
    if not isinstance(text, str) or any(character in text for character in "\n\r\0"):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
