"""Modifiers change lines before they are translated, and undo that in the translations."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from configs import RunConfig, StreamSection
from configs.components import make
from data_pipeline.stream.modifiers.texts import Noise, Prefix
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import OnLines, Translation, nobody
from zeromt.translating.undoing import with_undoing
from zeromt.translating.worker import Answer, Chunk, Line


def _copying(seen: list[str], chunks: Iterable[Chunk | None], _: OnLines) -> Iterator[Answer]:
    """A translator that copies; two chunks are in flight before the first answer, as with processes."""
    waiting: list[Chunk] = []
    for chunk in [*chunks, None]:
        waiting += [] if chunk is None else [chunk]
        while waiting and (chunk is None or len(waiting) > 2):
            sources = waiting.pop(0).sources
            seen += sources
            texts = [[Translation(text=t, log_prob=0.0, score=0.0, ids=[]) for t in (s, s.upper())] for s in sources]
            lines: list[Line | None] = [Line(translations=t) for t in texts]
            yield Answer(lines=lines, counts=SourceCounts())


def test_what_is_put_in_comes_out_of_each_lines_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last modifier first; behind the tag; and a line that none changes is left alone."""

    def number(_: Noise, line: str) -> Any:
        found = line.partition(" ")[0]
        return ("N" + line[len(found) :], lambda text: text.replace("N", found)) if found.isdigit() else None

    def prefix(one: Prefix, line: str) -> Any:
        return (one.text + line, lambda text: text[1:]) if "N" in line else None

    monkeypatch.setattr(Noise, "to_translate", number)
    monkeypatch.setattr(Prefix, "to_translate", prefix)
    augment = [make("modifier", "noise"), make("modifier", "prefix", text="N"), make("modifier", "typos")]
    config = RunConfig(stream=StreamSection(augment=augment))
    lines = ["5 a", "b", ">>de<< 17 c", "", "6", "7 N"]
    chunks: list[Chunk | None] = [Chunk(first=n, sources=lines[n : n + 1]) for n in range(len(lines))]
    seen: list[str] = []
    work = with_undoing(lambda given, on_lines: _copying(seen, given, on_lines), config)
    found = [line for answer in work([*chunks[:4], None, *chunks[4:]], nobody) for line in answer.lines if line]
    assert seen == ["NN a", "b", ">>de<< NN c", "", "NN", "NN N"]
    assert [line.translations[0].text for line in found] == ["5 a", "b", ">de<< 1717 c", "", "6", "7 7"]
    assert [line.translations[1].text for line in found] == ["5 A", "B", ">DE<< 1717 C", "", "6", "7 7"]
