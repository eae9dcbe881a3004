"""What a run's modifiers make of lines that are to be translated, and how that is undone in the translations."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from configs import RunConfig
from configs.components import TextModifier
from data_pipeline.tag_pieces import cut_tag
from trainer.inference.translation.translator import OnLines
from zeromt.translating.lines import but_pauses
from zeromt.translating.worker import Answer, Chunk, Line, Work


def with_undoing(work: Work, config: RunConfig) -> Work:
    """A translator of lines as the modifiers of a run want them, whose translations are as if they were not there."""
    taught = {m.kind: m for stream in config.streams for m in stream.augment if m.probability > 0}
    modifiers = [modifier for modifier in taught.values() if isinstance(modifier, TextModifier)]

    def undoing(chunks: Iterable[Chunk | None], on_lines: OnLines) -> Iterator[Answer]:
        waiting: deque[list[Callable[[str], str]]] = deque()

        def changed(line: str) -> str:
            tag, text = cut_tag(line)
            undo: list[Callable[[str], str]] = []
            for modifier in modifiers:
                if (found := modifier.to_translate(text)) is not None:
                    text = found[0]
                    undo.insert(0, found[1])
            waiting.append(undo)
            return tag + text

        def of_chunk(chunk: Chunk) -> Chunk:
            return replace(chunk, sources=[changed(line) for line in chunk.sources])

        for answer in work(but_pauses(of_chunk, chunks), on_lines):
            yield replace(answer, lines=[_undone(line, waiting.popleft()) for line in answer.lines])

    return undoing


def _undone(line: Line | None, undo: list[Callable[[str], str]]) -> Line | None:
    if line is None:
        return None
    for one in undo:
        line = replace(line, translations=[replace(t, text=one(t.text)) for t in line.translations])
    return line
