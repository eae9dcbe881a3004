"""Programs that are asked about pairs, and scores of pairs: from programs and from fields of the corpus.

A program gets `{"id": 7, "source": "A dog.", "target": "Ein Hund."}`, a line each, and answers each once, in any order.
What an answer holds is the caller's. An `{"id": 7, "error": "..."}`, an answer to nothing that was asked, none in time
and the program's end are errors that name file and line. A program must flush what it writes; it ends with
this process.
"""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.components import Pairs
from configs.data import ScoreCommand
from configs.process.files import inside
from configs.process.files.inside import parse_json
from configs.process.signals import PR_SET_PDEATHSIG, prctl
from data_pipeline.preparation.lines import TextChunk

AHEAD = 2
"""Batches that a program has at once, so that it need not wait for the next."""
NUMBER = "ZEROMT_PROGRAM"
"""Environment variable: the number of a program, from 0, among those of one command, as to choose its GPU by."""
END_SECONDS = 5.0
"""For a program to end after its input has."""

Inbox = queue.SimpleQueue[tuple["_Program", bytes | None]]
"""What programs have written, a line each; None where one has ended."""
MOST = float(np.finfo(np.float32).max)
"""The largest score."""
IN_EXTRA = "score "
"""Before the names of scores in `TextChunk.extra`."""
Scores = NDArray[np.float32]
"""(pairs,), NaN where a pair has none."""


def check_program(command: Sequence[str], place: str) -> None:
    """Refuse a program that is not there, before any long work.

    Raises:
        UserError: it is not; the message begins with `place`.
    """
    if shutil.which(command[0]) is None:
        raise UserError(f"{place}: {command[0]!r} is not a program that can be started; give its path")


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
        self._programs: list[_Program] = []
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
            try:
                self._programs.append(_Program(self._command, number, self._inbox))
            except OSError as error:
                raise self._fault(f"cannot be started: {error.strerror or error}") from error
        waiting = iter(rows)
        asked: dict[int, tuple[int, int]] = {}  # row and program, by id
        loads = [0] * len(self._programs)
        while True:
            while (load := min(loads)) < self._most and (row := next(waiting, None)) is not None:
                free = loads.index(load)
                loads[free] += 1
                asked[self._asked] = row, free
                question = {"id": self._asked, "source": pairs.sources[row], "target": pairs.targets[row]}
                self._programs[free].outbox.put(f"{json.dumps(question, ensure_ascii=False)}\n".encode())
                self._asked += 1
            if not asked:
                return
            first, _ = next(iter(asked.values()))
            tree = self._answer(pairs.where(first))
            if type(tree.get("id")) is not int or tree["id"] not in asked:
                raise self.refused(pairs, first, f"{str(tree)!r:.100}", "the id of a pair that waits")
            row, free = asked.pop(tree["id"])
            loads[free] -= 1
            if "error" in tree:
                said = " ".join(str(tree["error"]).split())[:200]
                raise self.refused(pairs, row, f"the error {said!r}", "an answer")
            yield row, tree

    def refused(self, pairs: Pairs, row: int, said: str, allowed: str) -> UserError:
        """The error for an answer that is none."""
        return self._fault(f"answered {said} about {pairs.where(row)}; allowed is {allowed}")

    def _answer(self, where: str) -> dict[str, Any]:
        """The next answer; the pair that has waited longest for one is at `where`.

        Raises:
            UserError: there is none.
        """
        try:
            program, line = self._inbox.get(timeout=self._seconds)
        except queue.Empty:
            raise self._fault(
                f"has not answered in {self._seconds:g} s, as about {where}; see whether it flushes what it writes, or "
                f"raise {self._place.rpartition('.')[0]}.seconds"
            ) from None
        if line is None:
            raise self._fault(
                f"{program.end()} while {where} was waited for; what is finished stays: see what it printed, and give "
                "the same command again"
            )
        try:
            tree = parse_json(line)
        except ValueError:
            tree = None
        if not isinstance(tree, dict):
            shown = line[:80].decode(errors="backslashreplace").strip()
            raise self._fault(f"answered {shown!r} when {where} was waited for; allowed is a JSON object with an id")
        return tree

    def _fault(self, what: str) -> UserError:
        return UserError(f"{self._place}: {self._command[0]!r} {what}")


class _Program:
    """A running program: lines are put to it and taken from it by threads, so that neither side waits for both."""

    def __init__(self, command: Sequence[str], number: int, inbox: Inbox) -> None:
        """Raises `OSError` if it cannot be started."""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, NUMBER: str(number)},
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # even if this process is killed
        )
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._inbox = inbox
        for work, pipe in ((self._put, self._process.stdin), (self._take, self._process.stdout)):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()

    def end(self) -> str:
        """How it has ended, in words."""
        try:
            code = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End its input and wait; kill it if it does not end."""
        self.outbox.put(None)
        try:
            self._process.wait(END_SECONDS if sys.exc_info()[0] is None else 0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _put(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            while (line := self.outbox.get()) is not None:
                pipe.write(line)
                if self.outbox.empty():
                    pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _take(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            for line in pipe:
                self._inbox.put((self, line))
        self._inbox.put((self, None))


@dataclass(frozen=True, slots=True)
class ScoreSources:
    """What a process needs to find the scores of a chunk."""

    fields: Sequence[str]
    """Names of those that stand in fields of the corpus: of `TextChunk.extra`."""
    commands: Sequence[str]
    """Names of those of commands."""
    folder: Path
    """What commands have said, a file for each chunk: an interrupted preparation does not ask again."""

    def of(self, text: TextChunk, unit: int) -> dict[str, Scores]:
        """The scores of a chunk's pairs, by name.

        Args:
            text: the chunk.
            unit: number of its unit.

        Raises:
            UserError: a field is no number, or scores of a command are gone.
        """
        found = {name: _of_field(name, text) for name in self.fields}
        for name in self.commands:
            if (scores := self.read(name, text, unit)) is None:
                raise UserError(f"prepare.scores.{name}: {self.folder}: scores were removed meanwhile; prepare again")
            found[name] = scores
        return found

    def read(self, name: str, text: TextChunk, unit: int) -> Scores | None:
        """What a command has said of a chunk; None if it is not there, or damaged."""
        try:
            with inside.opened(self._path(name, text, unit)) as file:
                scores: Scores = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return scores if scores.shape == (len(text.sources),) else None

    def write(self, name: str, text: TextChunk, unit: int, scores: Scores) -> None:
        """Keep what a command has said of a chunk."""
        path = self._path(name, text, unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with inside.replacing(path, sync=True) as file:
            np.save(file, scores)

    def _path(self, name: str, text: TextChunk, unit: int) -> Path:
        return self.folder / name / str(unit) / f"{text.first_line}.npy"


def fields_of(section: PrepareSection) -> dict[str, str]:
    """The fields of the corpus that scores stand in, by their names in `TextChunk.extra`."""
    return {f"{IN_EXTRA}{name}": str(field) for name, field in section.train.scores.items()}


def score_chunks(
    command: ScoreCommand,
    name: str,
    scores: ScoreSources,
    chunks: Iterable[tuple[TextChunk, int]],
    advance: Callable[[int], None],
) -> None:
    """Let a program score the pairs of chunks that have no scores yet, and keep these.

    Args:
        command: the program.
        name: of the score.
        scores: where they are kept.
        chunks: of the corpus, each with the number of its unit.
        advance: called with numbers of pairs that are done.

    Raises:
        UserError: the program does not answer as it should, or a chunk cannot be read. What is done stays.
    """
    place = f"prepare.scores.{name}.command"
    with Respondents(
        command.command, place, processes=command.processes, batch=command.batch, seconds=command.seconds
    ) as programs:
        for text, unit in chunks:
            if scores.read(name, text, unit) is None:
                scores.write(name, text, unit, _asked(programs, text))
            advance(len(text.sources))


def _asked(programs: Respondents, text: TextChunk) -> Scores:
    """What programs say of a chunk; a pair with a blank side has no score."""
    found = np.full(len(text.sources), np.nan, dtype=np.float32)
    pairs = Pairs(sources=text.sources, targets=text.targets, where=text.where)
    both = zip(text.sources, text.targets, strict=True)
    rows = [row for row, (source, target) in enumerate(both) if source.strip() and target.strip()]
    for row, answer in programs.ask(pairs, rows):
        if not _is_score(answer.get("score", "")):
            said = repr(answer.get("score", "no score"))[:80]
            raise programs.refused(pairs, row, said, "a finite number as its score, or null")
        found[row] = np.nan if answer["score"] is None else answer["score"]
    return found


def _is_score(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


def _of_field(name: str, text: TextChunk) -> Scores:
    """The numbers in a field of a chunk; of an empty one and `nan` NaN."""
    found = np.empty(len(text.sources), dtype=np.float32)
    for row, number in enumerate(text.extra[f"{IN_EXTRA}{name}"]):
        try:
            value = float(number.strip() or "nan")
        except ValueError:
            value = np.inf
        if abs(value) > MOST or "_" in number:  # Python reads 12_34 as a number
            where, allowed = text.where(row), "a number, or nothing where there is no score"
            raise UserError(f"{where}: {name} is {number!r:.80}; allowed is {allowed}")
        found[row] = value
    return found
