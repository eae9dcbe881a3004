"""Programs that are asked about pairs, and scores of pairs: from programs and from fields of the corpus.

A program gets `{"id": 7, "source": "A dog.", "target": "Ein Hund."}`, a line each, and answers each once, in any order.
What an answer holds is the caller's. An `{"id": 7, "error": "..."}`, an answer to nothing that was asked, none in time
and the program's end are errors that name file and line. A program must flush what it writes; it ends with
this process.
"""

import contextlib
import json
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

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
END_SECONDS = 5.0
"""For a program to end after its input has."""

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


class Respondent:
    """A program that is asked about pairs; it starts with the first question.

    Lines are put to it and taken from it by threads, so that neither side waits for both.

    Args:
        command: the program and its arguments.
        place: the field that names it, for messages.
        batch: pairs of a batch.
        seconds: for its next answer.
    """

    def __init__(self, command: Sequence[str], place: str, *, batch: int, seconds: float) -> None:
        self._command, self._place = command, place
        self._most, self._seconds = AHEAD * batch, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._asked = 0

    def close(self) -> None:
        """End its input and wait; kill it if it does not end."""
        if self._process is None:
            return
        self._outbox.put(None)
        try:
            self._process.wait(END_SECONDS if sys.exc_info()[0] is None else 0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, pairs: Pairs, rows: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The answer to each of some pairs, in the order in which they come.

        Raises:
            UserError: the program cannot be started, ends, or does not answer as it should.
        """
        process = self._process or self._start()
        waiting = iter(rows)
        asked: dict[int, int] = {}  # row by id
        while True:
            while len(asked) < self._most and (row := next(waiting, None)) is not None:
                question = {"id": self._asked, "source": pairs.sources[row], "target": pairs.targets[row]}
                self._outbox.put(f"{json.dumps(question, ensure_ascii=False)}\n".encode())
                asked[self._asked] = row
                self._asked += 1
            if not asked:
                return
            first = next(iter(asked.values()))
            tree = self._answer(process, pairs.where(first))
            if type(tree.get("id")) is not int or tree["id"] not in asked:
                raise self.refused(pairs, first, f"{str(tree)!r:.100}", "the id of a pair that waits")
            row = asked.pop(tree["id"])
            if "error" in tree:
                said = " ".join(str(tree["error"]).split())[:200]
                raise self.refused(pairs, row, f"the error {said!r}", "an answer")
            yield row, tree

    def refused(self, pairs: Pairs, row: int, said: str, allowed: str) -> UserError:
        """The error for an answer that is none."""
        return self._fault(f"answered {said} about {pairs.where(row)}; allowed is {allowed}")

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # even if this process is killed
            )
        except OSError as error:
            raise self._fault(f"cannot be started: {error.strerror or error}") from error
        for work, pipe in ((self._put, self._process.stdin), (self._take, self._process.stdout)):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()
        return self._process

    def _answer(self, process: "subprocess.Popen[bytes]", where: str) -> dict[str, Any]:
        """The next answer; the pair that has waited longest for one is at `where`.

        Raises:
            UserError: there is none.
        """
        try:
            line = self._inbox.get(timeout=self._seconds)
        except queue.Empty:
            raise self._fault(
                f"has not answered in {self._seconds:g} s, as about {where}; see whether it flushes what it writes, or "
                f"raise {self._place.rpartition('.')[0]}.seconds"
            ) from None
        if line is None:
            raise self._fault(
                f"{_end_of(process)} while {where} was waited for; what is finished stays: see what it printed, and "
                "give the same command again"
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

    def _put(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            while (line := self._outbox.get()) is not None:
                pipe.write(line)
                if self._outbox.empty():
                    pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _take(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            for line in pipe:
                self._inbox.put(line)
        self._inbox.put(None)


def _end_of(process: "subprocess.Popen[bytes]") -> str:
    """How a program has ended, in words."""
    try:
        code = process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        return "closed its output"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class ScoreSources(NamedTuple):
    """What a process needs to find the scores of a chunk."""

    fields: Sequence[str]
    """Names of those that fields of the corpus contain: keys of `TextChunk.extra`."""
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
            UserError: a field is not a number, or scores of a command are gone.
        """
        by_name = {name: _of_field(name, text) for name in self.fields}
        for name in self.commands:
            if (scores := self.read(name, text, unit)) is None:
                raise UserError(f"prepare.scores.{name}: {self.folder}: scores were removed meanwhile; prepare again")
            by_name[name] = scores
        return by_name

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
    """The fields of the corpus that contain scores, by their names in `TextChunk.extra`."""
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
    program = Respondent(command.command, place, batch=command.batch, seconds=command.seconds)
    with contextlib.closing(program):
        for text, unit in chunks:
            if scores.read(name, text, unit) is None:
                scores.write(name, text, unit, _asked(program, text))
            advance(len(text.sources))


def _asked(program: Respondent, text: TextChunk) -> Scores:
    """What a program says of a chunk; a pair with a blank side has no score."""
    scores = np.full(len(text.sources), np.nan, dtype=np.float32)
    pairs = Pairs(sources=text.sources, targets=text.targets, where=text.where)
    both = zip(text.sources, text.targets, strict=True)
    rows = [row for row, (source, target) in enumerate(both) if source.strip() and target.strip()]
    for row, answer in program.ask(pairs, rows):
        score = answer.get("score", "no score")
        if score is not None and (type(score) not in (int, float) or not abs(score) <= MOST):
            raise program.refused(pairs, row, repr(score)[:80], "a finite number as its score, or null")
        scores[row] = np.nan if score is None else score
    return scores


def _of_field(name: str, text: TextChunk) -> Scores:
    """The numbers in a field of a chunk; of an empty one and `nan` NaN."""
    scores = np.empty(len(text.sources), dtype=np.float32)
    for row, number in enumerate(text.extra[f"{IN_EXTRA}{name}"]):
        try:
            value = float(number.strip() or "nan")
        except ValueError:
            value = np.inf
        if abs(value) > MOST or "_" in number:  # Python reads 12_34 as a number
            where, allowed = text.where(row), "a number, or nothing where there is no score"
            raise UserError(f"{where}: {name} is {number!r:.80}; allowed is {allowed}")
        scores[row] = value
    return scores
