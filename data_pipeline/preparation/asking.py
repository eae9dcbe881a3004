"""Programs that are asked about pairs: scores and filters that are commands.

A program gets `{"id": 7, "source": "A dog.", "target": "Ein Hund."}`, a line each, and answers each once, in any order.
What an answer holds is the caller's. An `{"id": 7, "error": "..."}`, an answer to nothing that was asked, none in time
and the program's end are errors that name file and line.
"""

import queue
import shutil
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from configs import UserError
from configs.components import Pairs
from data_pipeline.preparation.programs import Inbox, Program, answer

AHEAD = 2
"""Batches that a program has at once, so that it need not wait for the next."""


def check_program(command: Sequence[str], place: str) -> None:
    """Refuse a program that is not there, before any long work.

    Raises:
        UserError: it is not; the message begins with `place`.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{place}: {command[0]!r} is no program that can be started; give its path")


class Respondents:
    """Programs of one command, which start with the first question.

    Args:
        command: the program and its arguments.
        place: the field that names it, for messages.
        processes: how many of it are started.
        batch: pairs of a batch.
        seconds: for the next answer of any of them.
    """

    def __init__(self, command: Sequence[str], place: str, *, processes: int, batch: int, seconds: float) -> None:
        self._command, self._place, self._processes = command, place, processes
        self._most, self._seconds = AHEAD * batch, seconds
        self._inbox: Inbox = queue.SimpleQueue()
        self._programs: list[Program] = []
        self._asked = 0

    def __enter__(self) -> "Respondents":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End them."""
        for program in self._programs:
            program.close()

    def ask(self, pairs: Pairs, rows: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The answer to each of some pairs, in the order in which they come.

        Raises:
            UserError: a program cannot be started, ends, or does not answer as it should.
        """
        for number in range(len(self._programs), self._processes):
            self._programs.append(Program(self._command, self._place, self._inbox, number))
        waiting = iter(rows)
        asked: dict[int, tuple[int, int]] = {}  # row and program, by id
        loads = [0] * len(self._programs)
        while True:
            while (load := min(loads)) < self._most and (row := next(waiting, None)) is not None:
                free = loads.index(load)
                loads[free] += 1
                asked[self._asked] = row, free
                texts = {"source": pairs.sources[row], "target": pairs.targets[row]}
                self._programs[free].send({"id": self._asked, **texts})
                self._asked += 1
            if not asked:
                return
            first, _ = next(iter(asked.values()))
            tree = self._answer(pairs, first)
            if tree["id"] not in asked:
                raise self.refused(
                    pairs, first, f"{str(tree)!r:.100}, to nothing that waits", "one answer to each pair"
                )
            row, free = asked.pop(tree["id"])
            loads[free] -= 1
            if "error" in tree:
                error = " ".join(str(tree["error"]).split())[:200]
                raise self.refused(pairs, row, f"the error {error!r}", "an answer")
            yield row, tree

    def refused(self, pairs: Pairs, row: int, said: str, allowed: str) -> UserError:
        """The error for an answer that is none."""
        return UserError(f"{self._programs[0].name} answered {said} about {pairs.where(row)}; allowed is {allowed}")

    def _answer(self, pairs: Pairs, row: int) -> dict[str, Any]:
        """The next answer; `row` has waited longest for one.

        Raises:
            UserError: there is none.
        """
        try:
            tree = answer(self._inbox, self._seconds)
        except UserError as error:
            raise UserError(f"{error} ({pairs.where(row)} was waited for)") from error
        if tree is None:
            raise UserError(
                f"{self._programs[0].name} has not answered in {self._seconds:g} s, as about {pairs.where(row)}; see "
                f"whether it flushes what it writes, or raise {self._place.rpartition('.')[0]}.seconds"
            )
        return tree
