"""The engine `command`: any program, started once, that answers lines of JSON in any order.

It is fed `{"id": 7, "source": "A dog.", "context": [], "candidates": 1}`, a line each, and answers with
`{"id": 7, "candidates": ["Ein Hund."]}`, where a candidate may be `{"text": ..., "log_prob": ..., "score": ...}`, best
first; or with `{"id": 7, "error": "..."}`. A line without an answer in time, or with an error, is sent again; one that
is never answered is a hole.
"""

import contextlib
import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import override

from configs.components import Candidate, Prepared, Sources, Translate, Translated, TranslationEngine, component
from configs.errors import UserError
from configs.fields import Count, PathText, Positive, PositiveFloat
from configs.process.files import inside, naming
from configs.process.programs import Program
from trainer.runs.versions import versions

AHEAD = 4
"""Chunks of which lines are in flight at once, so that a slow line does not hold up the rest."""
NEVER = "never answered"


@component("translation_engine", "command")
class Command(TranslationEngine):
    """A program that reads and writes lines of JSON: a server's client, a library, another trainer's model."""

    command: Annotated[list[str], Field(min_length=1)]
    """The program and its arguments; no shell. Secrets belong in its environment, which is recorded nowhere."""
    name: str | None = None
    """What it is, such as a model's name and version: a part of what every line was made with."""
    prompt: PathText | None = None
    """A file that the program uses, whose content is a part of what every line was made with."""
    in_flight: Positive = 64
    """Most lines that it has at once."""
    seconds: PositiveFloat = 120.0
    """For an answer."""
    retries: Count = 3
    """Times that a line is sent again."""
    context: Count = 0
    """Lines before a line, within its chunk, that are sent with it."""

    @override
    def prepare(self, candidates: int) -> Prepared:
        return _Prepared(self, candidates)


class _Prepared:
    """The program that is to be started."""

    run = None

    def __init__(self, engine: Command, candidates: int) -> None:
        self._engine, self._candidates = engine, candidates
        self._counts = _Counts()
        self.identity: Mapping[str, Any] = {
            "kind": engine.kind,
            "command": engine.command,
            "name": engine.name,
            "prompt": None if engine.prompt is None else _text_of(engine.prompt),
            "context": engine.context,
        }

    def start(self, stack: contextlib.ExitStack, folder: Path, *, processes: int | None) -> Translate:
        """Start the program."""
        program = Program(self._engine.command, "engine.command")
        stack.callback(program.close)

        def translate(chunks: Iterable[Sources], on_lines: Callable[[int], None]) -> Iterator[list[Translated]]:
            return _Exchange(self._engine, program, self._counts, self._candidates, on_lines).translate(chunks)

        return translate

    def build(self) -> Mapping[str, str]:
        """The version that asked."""
        return versions(["zeromt"])

    def warnings(self) -> list[str]:
        """How often the program did not answer as it should."""
        return self._counts.warnings()


@dataclass(slots=True)
class _Counts:
    again: int = 0
    """Lines that were sent again, each time counted."""
    holes: int = 0
    strange: int = 0
    """Answers to no line that is waited for."""

    def warnings(self) -> list[str]:
        said = []
        if self.again:
            said.append(f"{self.again:,} times a line was sent again")
        if self.holes:
            said.append(f"{self.holes:,} lines were never answered and are holes")
        if self.strange:
            said.append(f"{self.strange:,} answers were to no line that was waited for")
        return [f"engine.command: {', '.join(said)}"] if said else []


@dataclass(slots=True)
class _Open:
    """A chunk of which lines are in flight."""

    found: list[Translated | None]
    left: int


@dataclass(slots=True)
class _Sent:
    """A line in flight."""

    chunk: _Open
    row: int
    tree: dict[str, Any]
    tries: int = 0
    until: float = 0.0
    last_error: str = ""


@dataclass(slots=True)
class _Exchange:
    """Lines to a program and answers from it, by id."""

    engine: Command
    program: Program
    counts: _Counts
    candidates: int
    on_lines: Callable[[int], None]
    flying: dict[int, _Sent] = field(default_factory=dict)
    deadlines: list[tuple[float, int]] = field(default_factory=list)
    """A heap of times and ids; one whose line has another time by now says nothing."""

    def translate(self, chunks: Iterable[Sources]) -> Iterator[list[Translated]]:
        """What became of the lines of each chunk, in order."""
        opened: deque[_Open] = deque()
        lines = self._lines(chunks, opened)
        waiting = next(lines, None)
        while waiting is not None or opened:
            while waiting is not None and len(self.flying) < self.engine.in_flight and self._may_open(opened, waiting):
                self._send(waiting)
                waiting = next(lines, None)
            while opened and not opened[0].left:
                yield [one or Translated(hole=NEVER) for one in opened.popleft().found]
            if self.flying:
                self._wait()

    def _may_open(self, opened: "deque[_Open]", waiting: _Sent) -> bool:
        """Whether a line's chunk is one of the first few that are open."""
        return any(waiting.chunk is one for one in list(opened)[:AHEAD])

    def _lines(self, chunks: Iterable[Sources], opened: "deque[_Open]") -> Iterator[_Sent]:
        for chunk in chunks:
            one = _Open(found=[None] * len(chunk.lines), left=len(chunk.lines))
            opened.append(one)
            for row, (number, line) in enumerate(zip(chunk.numbers, chunk.lines, strict=True)):
                before = chunk.lines[max(0, row - self.engine.context) : row]
                tree = {"id": number, "source": line, "context": before, "candidates": self.candidates}
                yield _Sent(chunk=one, row=row, tree=tree)

    def _send(self, line: _Sent) -> None:
        line.until = time.monotonic() + self.engine.seconds
        self.flying[line.tree["id"]] = line
        heapq.heappush(self.deadlines, (line.until, line.tree["id"]))
        self.program.send(line.tree)

    def _wait(self) -> None:
        """Until an answer comes, or a line's time is over."""
        while self.deadlines and not self._is_due(*self.deadlines[0]):
            heapq.heappop(self.deadlines)
        answer = self.program.answer(self.deadlines[0][0] - time.monotonic())
        if answer is not None:
            self._take(answer)
        elif time.monotonic() >= self.deadlines[0][0]:
            self._again(self.flying[heapq.heappop(self.deadlines)[1]], NEVER)

    def _is_due(self, until: float, number: int) -> bool:
        line = self.flying.get(number)
        return line is not None and line.until == until

    def _take(self, answer: Mapping[str, Any]) -> None:
        line = self.flying.get(answer["id"])
        if line is None:
            self.counts.strange += 1
            return
        if "error" in answer:
            self._again(line, f"error: {' '.join(str(answer['error']).split())[:200]}")
            return
        found = [candidate for one in _listed(answer.get("candidates")) if (candidate := _candidate(one)) is not None]
        if not found:
            self._again(line, "no candidate in the answer")
            return
        self._finish(line, Translated(candidates=found[: self.candidates]))

    def _again(self, line: _Sent, why: str) -> None:
        if line.tries == self.engine.retries:
            self.counts.holes += 1
            self._finish(line, Translated(hole=why))
            return
        line.tries += 1
        self.counts.again += 1
        self._send(line)

    def _finish(self, line: _Sent, translated: Translated) -> None:
        del self.flying[line.tree["id"]]
        line.chunk.found[line.row] = translated
        line.chunk.left -= 1
        self.on_lines(1)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _candidate(value: Any) -> Candidate | None:
    """A candidate of an answer; None if it is none."""
    tree = {"text": value} if isinstance(value, str) else value
    if not isinstance(tree, dict) or not isinstance(tree.get("text"), str) or not tree["text"].strip():
        return None
    numbers = {name: tree.get(name) for name in ("log_prob", "score")}
    if not all(value is None or _is_number(value) for value in numbers.values()):
        return None
    return Candidate(text=tree["text"], **{n: None if value is None else float(value) for n, value in numbers.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text_of(prompt: str) -> str:
    with naming("engine.prompt"):
        try:
            return inside.read_bytes(Path(prompt), follow=True).decode()
        except FileNotFoundError as error:
            raise UserError(f"engine.prompt: {prompt!r}: no such file; give one that exists") from error
        except ValueError as error:
            raise UserError(f"engine.prompt: {prompt!r} is no UTF-8 text") from error
