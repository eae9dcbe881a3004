"""Asks a command for the scores of chunks that have none yet."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from configs.components import Pairs
from configs.data import ScoreCommand
from data_pipeline.preparation.asking import Respondents
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.scoring.numbers import MOST, Scores
from data_pipeline.preparation.scoring.sources import ScoreSources


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
    place = f"prepare.scores.{name}.command"
    with Respondents(
        command.command, place, processes=command.processes, batch=command.batch, seconds=command.seconds
    ) as programs:
        for text, unit in chunks:
            if scores.read(name, text, unit) is None:
                scores.write(name, text, unit, _asked(programs, text))
            advance(len(text.sources))


def _asked(programs: Respondents, text: TextChunk) -> Scores:
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
