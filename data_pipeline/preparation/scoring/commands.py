"""Asks a command for the scores of chunks that have none yet."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.components import Pairs
from configs.data import ScoreCommand
from data_pipeline.preparation.asking import Question, Respondents
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.scoring.numbers import MOST, Scores
from data_pipeline.preparation.scoring.sources import ScoreSources


@dataclass(slots=True)
class _Open:
    """A chunk whose pairs are being scored."""

    text: TextChunk
    unit: int
    scores: Scores
    left: int


def score_chunks(
    command: ScoreCommand,
    name: str,
    scores: ScoreSources,
    chunks: Iterable[tuple[TextChunk, int]],
    advance: Callable[[int], None],
) -> None:
    """Score the pairs of chunks that have no scores yet, and keep these; a pair with a blank side has none.

    Args:
        command: the program.
        name: of the score.
        scores: where they are kept.
        chunks: of the corpus, each with the number of its unit.
        advance: called with numbers of pairs that are done.

    Raises:
        UserError: the program does not answer as it should, or a chunk cannot be read. What is done stays.
    """
    missing = _missing(name, scores, chunks, advance)
    first = next(missing, None)
    if first is None:
        return
    opened: dict[int, _Open] = {}

    def questions() -> Iterator[Question]:
        for text, unit in itertools.chain([first], missing):
            pairs = Pairs(sources=text.sources, targets=text.targets, where=text.where)
            both = zip(text.sources, text.targets, strict=True)
            rows = [row for row, (source, target) in enumerate(both) if source.strip() and target.strip()]
            opened[id(pairs)] = _Open(text, unit, np.full(len(text.sources), np.nan, dtype=np.float32), len(rows))
            if not rows:
                finish(pairs)
            for row in rows:
                yield Question(pairs, row)

    def finish(pairs: Pairs) -> None:
        done = opened.pop(id(pairs))
        scores.write(name, done.text, done.unit, done.scores)
        advance(len(pairs.sources))

    place = f"prepare.scores.{name}.command"
    with Respondents(
        command.command, place, processes=command.processes, batch=command.batch, seconds=command.seconds
    ) as programs:
        for question, answer in programs.ask(questions()):
            if not _is_score(answer.get("score", "")):
                said = repr(answer.get("score", "no score"))[:80]
                raise programs.refused(question, said, "a finite number as its score, or null")
            one = opened[id(question.pairs)]
            one.scores[question.row] = math.nan if answer["score"] is None else answer["score"]
            one.left -= 1
            if not one.left:
                finish(question.pairs)


def _missing(
    name: str, scores: ScoreSources, chunks: Iterable[tuple[TextChunk, int]], advance: Callable[[int], None]
) -> Iterator[tuple[TextChunk, int]]:
    for text, unit in chunks:
        if scores.read(name, text, unit) is None:
            yield text, unit
        else:
            advance(len(text.sources))


def _is_score(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST
