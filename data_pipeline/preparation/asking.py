"""Programs that are asked about pairs: scores and filters that are commands.

A program gets `{"id": 7, "source": "A dog.", "target": "Ein Hund."}`, a line each, and answers each once, in any order.
What an answer holds is the caller's. An `{"id": 7, "error": "..."}`, an answer to nothing that was asked, none in time
and the program's end are errors that name file and line.
"""

import contextlib
import queue
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from configs import UserError
from configs.components import Pairs
from data_pipeline.preparation.programs import Inbox, Program, answer

AHEAD = 2
"""Batches that a program has at once, so that it need not wait for the next."""

FURTHEST = 4
"""By how many times what all programs have at once one of them may be behind the others."""


@dataclass(frozen=True, slots=True)
class Question:
    """A pair that a program is asked about."""

    pairs: Pairs
    row: int

    @property
    def where(self) -> str:
        """Its file and line."""
        return self.pairs.where(self.row)


def check_program(command: Sequence[str], place: str) -> None:
    """Refuse a program that is not there, before any long work.

    Raises:
        UserError: it is not; the message begins with `place`.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{place}: {command[0]!r} is no program that can be started; give its path")


class Respondents:
    """Running programs of one command.

    Args:
        command: the program and its arguments.
        place: the field that names it, for messages.
        processes: how many of it are started.
        batch: pairs of a batch.
        seconds: for the next answer of any of them.

    Raises:
        UserError: it cannot be started.
    """

    def __init__(self, command: Sequence[str], place: str, *, processes: int, batch: int, seconds: float) -> None:
        self._place, self._most, self._seconds = place, AHEAD * batch, seconds
        self._inbox: Inbox = queue.SimpleQueue()
        self._programs: list[Program] = []
        self._asked = 0
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            for number in range(processes):
                self._programs.append(Program(command, place, self._inbox, number))
            stack.pop_all()

    def __enter__(self) -> "Respondents":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End them."""
        for program in self._programs:
            program.close()

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[Question, dict[str, Any]]]:
        """The answer to each question, in the order in which they come.

        Raises:
            UserError: a program ends, or does not answer as it should.
        """
        flying: OrderedDict[int, tuple[Question, int]] = OrderedDict()
        loads = [0] * len(self._programs)
        ahead = iter(questions)
        waiting = next(ahead, None)
        while waiting is not None or flying:
            while waiting is not None and (least := min(loads)) < self._most and self._is_near(flying):
                free = loads.index(least)
                loads[free] += 1
                flying[self._asked] = (waiting, free)
                texts = {"source": waiting.pairs.sources[waiting.row], "target": waiting.pairs.targets[waiting.row]}
                self._programs[free].send({"id": self._asked, **texts})
                self._asked, waiting = self._asked + 1, next(ahead, None)
            tree = self._answer(flying)
            question, of = flying.pop(tree["id"])
            loads[of] -= 1
            if "error" in tree:
                raise self.refused(question, f"the error {' '.join(str(tree['error']).split())[:200]!r}", "an answer")
            yield question, tree

    def _is_near(self, flying: OrderedDict[int, tuple[Question, int]]) -> bool:
        """Whether the question that has waited longest is not far behind: a program may still load its model."""
        return not flying or self._asked - next(iter(flying)) < FURTHEST * self._most * len(self._programs)

    def refused(self, question: Question, said: str, allowed: str) -> UserError:
        """The error for an answer that is none."""
        return UserError(f"{self._programs[0].name} answered {said} about {question.where}; allowed is {allowed}")

    def _answer(self, flying: OrderedDict[int, tuple[Question, int]]) -> dict[str, Any]:
        """The next answer to one of the questions.

        Raises:
            UserError: there is none.
        """
        first = next(iter(flying.values()))[0]
        try:
            tree = answer(self._inbox, self._seconds)
        except UserError as error:
            raise UserError(f"{error} ({first.where} was waited for)") from error
        if tree is None:
            raise UserError(
                f"{self._programs[0].name} has not answered in {self._seconds:g} s, as about {first.where}; see "
                f"whether it flushes what it writes, or raise {self._place.rpartition('.')[0]}.seconds"
            )
        if tree["id"] not in flying:
            raise UserError(
                f"{self._programs[0].name} answered {str(tree)!r:.100}, to nothing that waits ({first.where} does); "
                "allowed is one answer to each pair"
            )
        return tree
