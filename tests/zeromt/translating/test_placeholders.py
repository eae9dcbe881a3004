"""Placeholders go into lines and come out of translations, in order, whatever a model makes of them."""

import re
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs import RunConfig, StreamSection, UserError
from configs.components import make
from configs.data import PhaseSection
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import OnLines, Translation, nobody
from zeromt.translating.placeholders import with_copies
from zeromt.translating.worker import Answer, Chunk, Line, Work

NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")


def _config(**fields: object) -> RunConfig:
    return RunConfig(stream=StreamSection(augment=[make("modifier", "placeholders", **fields)]))


def _model(change: Callable[[str], list[str]], seen: list[str]) -> Work:
    """A translator that is this function; two chunks are in flight before the first answer, as with processes."""

    def work(chunks: Iterable[Chunk | None], on_lines: OnLines) -> Iterator[Answer]:
        waiting: list[Chunk] = []
        for chunk in chunks:
            if chunk is not None:
                waiting.append(chunk)
                seen.extend(chunk.sources)
            while waiting and (chunk is None or len(waiting) > 2):
                yield answer(waiting.pop(0))
        yield from map(answer, waiting)

    def answer(chunk: Chunk) -> Answer:
        lines: list[Line | None] = [
            Line(
                translations=[Translation(text=text, log_prob=0.0, score=0.0, ids=[]) for text in change(line)],
                alignments=[],
                attention=None,
            )
            for line in chunk.sources
        ]
        return Answer(lines=lines, counts=SourceCounts())

    return work


def _translate(
    lines: list[str], change: Callable[[str], list[str]], config: RunConfig, pattern: re.Pattern[str] = NUMBERS
) -> tuple[list[str], list[list[str]]]:
    """What the model was given, and the translations; two lines to a chunk, and a pause behind the fourth of these."""
    seen: list[str] = []
    chunks: list[Chunk | None] = [Chunk(first=n, sources=lines[n : n + 2]) for n in range(0, len(lines), 2)]
    found = with_copies(_model(change, seen), pattern, config)([*chunks[:4], None, *chunks[4:]], nobody)
    return seen, [[t.text for t in line.translations] for answer in found for line in answer.lines if line is not None]


def test_what_was_put_in_comes_out_in_any_order(capfd: pytest.CaptureFixture[str]) -> None:
    lines = ["", "5 of 1,000 by 12:30.", "none", "a7 and <num1> and 8", ">>de2<< 5 and 5 6"]
    seen, found = _translate(lines, lambda line: [" ".join(reversed(line.split(" "))), line], _config(most=2))
    assert seen == [
        "", "<num1> of <num2> by 12:30.", "none", "a7 and <num1> and 8", ">>de2<< <num1> and <num2> 6"
    ]  # fmt: skip
    assert found == [
        ["", ""],
        ["12:30. by 1,000 of 5", lines[1]],
        ["none", "none"],
        ["8 and <num1> and a7", lines[3]],
        ["6 5 and 5 >>de2<<", lines[4]],
    ]
    assert capfd.readouterr().err == ""


def test_lost_ones_are_told_and_made_up_ones_stay(capfd: pytest.CaptureFixture[str]) -> None:
    [[_], [line]] = _translate(["3 for 4 by Ann"], lambda line: ["<num1><num1> <num7> <name1>"], _config())
    assert line == ["33 <num7> <name1>"]
    assert capfd.readouterr().err == "zeromt: --placeholders: 1 of 2 placeholders are missing in the translations\n"


@pytest.mark.parametrize(
    ("of", "expected"),
    [("both", "<name1> has <num1> of <name2>"), ("numbers", "<num1> has <num2> of <num3>"),
     ("names", "<name1> has <name2> of <name3>")],
)  # fmt: skip
def test_placeholders_are_of_the_kinds_that_were_learnt(of: str, expected: str) -> None:
    """A pattern may find anything; a match that is a number is one where the run has seen both."""
    pattern = re.compile(r"New York|\d+|[A-Z]\w+|")
    assert _translate(["New York has 12 of X1"], lambda line: [line], _config(of=of), pattern) == (
        [expected], [["New York has 12 of X1"]]
    )  # fmt: skip


@given(
    st.lists(st.text(st.sampled_from("a1. ,<>{}\\num٣")), max_size=9),
    st.sampled_from([r"\d+", ".", ".*", "(?=1)", "<"]),
)
def test_a_model_that_copies_gives_the_lines_back(lines: list[str], pattern: str) -> None:
    _, found = _translate(lines, lambda line: [line], _config(most=3), re.compile(pattern))
    assert found == [[line] for line in lines]


def test_runs_that_have_not_learnt_it_are_refused() -> None:
    work = _model(lambda line: [line], [])
    config = RunConfig(phases=[PhaseSection(name="a", augment=[make("modifier", "placeholders")])])
    assert list(with_copies(work, NUMBERS, config)([], nobody)) == [], "a phase's will do"
    for other in (RunConfig(), _config(probability=0.0)):
        assert with_copies(work, None, other) is work
        with pytest.raises(UserError, match="--placeholders: this run has not learnt to copy any; train with"):
            with_copies(work, NUMBERS, other)
