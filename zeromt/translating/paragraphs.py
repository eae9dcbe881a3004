"""`--paragraphs`: each sentence of a line is translated by itself, and the translations are joined again.

Models are trained on sentences, and people paste paragraphs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from data_pipeline.tokenizer import Tokenizer
from trainer.inference.translation.translator import OnLines
from zeromt.translating.corpus.splitting import cut, join, joined, sentences
from zeromt.translating.lines import but_pauses
from zeromt.translating.worker import Answer, Chunk, Line, Work


def with_paragraphs(work: Work, tokenizer: Tokenizer) -> Work:
    """A translator that gets sentences, and whose translations are of whole lines."""

    def by_sentence(chunks: Iterable[Chunk | None], on_lines: OnLines) -> Iterator[Answer]:
        waiting: deque[list[int]] = deque()

        def cut_up(chunk: Chunk) -> Chunk:
            by_line = [sentences(tokenizer, line) for line in chunk.sources]
            waiting.append([len(texts) for texts in by_line])
            return cut(chunk, by_line)

        for answer in work(but_pauses(cut_up, chunks), on_lines):
            found = iter(answer.lines)
            yield replace(answer, lines=[_joined([next(found) for _ in range(n)]) for n in waiting.popleft()])

    return by_sentence


def translated_paragraphs(
    sources: Sequence[str], tokenizer: Tokenizer, translate: Callable[[list[str]], list[str]]
) -> list[str]:
    """The translations of lines by way of their sentences.

    Args:
        sources: the lines.
        tokenizer: knows their tags.
        translate: gives the translation of each sentence.
    """
    by_line = [sentences(tokenizer, line) for line in sources]
    found = iter(translate([text for texts in by_line for text in texts]))
    return [join([next(found) for _ in texts]) for texts in by_line]


def _joined(parts: Sequence[Line | None]) -> Line | None:
    """The best of each sentence as one, the second best, and so on."""
    there = [part for part in parts if part is not None]
    if len(there) < len(parts):
        return None
    return replace(there[0], translations=joined(part.translations for part in there))
