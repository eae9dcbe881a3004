"""What stands between lines and the models: modifiers, which are undone, by commands and from Python."""

import contextlib
from typing import Any

import pytest

import zeromt
from configs.components import make
from data_pipeline.stream.modifiers.texts import Noise, Prefix
from tests.trainer.conftest import TrainedRun
from zeromt.translator.engine import Engine, started
from zeromt.translator.scored import is_repeated
from zeromt.translator.worker import Chunk, Options


def _translated(engine: Engine, lines: list[str]) -> list[str]:
    chunks = [Chunk(first=0, sources=lines[:2]), None, Chunk(first=2, sources=lines[2:])]
    return [one[0].text for answer in engine.translate(chunks) for one in answer]


def test_what_modifiers_put_in_comes_out_of_the_translations(
    trained: TrainedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last modifier first; behind the tag; and a line that none changes is left alone."""
    lines = trained.source.read_text().splitlines()[:3]
    with contextlib.ExitStack() as stack:
        engine = started(stack, Options(run=str(trained.folder)))
        plain = _translated(engine, lines)

        def first(_: Noise, line: str) -> Any:
            return (line.removeprefix("5 "), lambda text: f"{text} 5") if line.startswith("5 ") else None

        def second(_: Prefix, line: str) -> Any:
            return (line.removeprefix("N "), lambda text: f"{text} N") if line.startswith("N ") else None

        monkeypatch.setattr(Noise, "to_translate", first)
        monkeypatch.setattr(Prefix, "to_translate", second)
        engine.modifiers = [make("modifier", "noise"), make("modifier", "prefix", text="N")]
        given = [f"5 N {lines[0]}", lines[1], f"N {lines[2]}"]
        undone = [f"{plain[0]} N 5", plain[1], f"{plain[2]} N"]
        assert _translated(engine, given) == undone
        loaded = zeromt.load(trained.folder)
        loaded.engine.modifiers = engine.modifiers
        assert loaded.translate(given) == undone
        by_score = loaded.evaluate(given, plain, metrics=["bleu"])
        loaded.engine.modifiers = []
        assert by_score == loaded.evaluate(given, plain, metrics=["bleu"]), "a score is of lines as they are"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no no no no", True),
        ("it is what it is what it is what it is what", True),
        ("a b c d a b c d a b c d a b c d", True),
        ("no no no", False),
        ("a b c d e a b c d e a b c d e a b c d e", False),
        ("", False),
    ],
)
def test_translations_that_loop(text: str, expected: bool) -> None:
    assert is_repeated(f"so {text} .".strip()) == expected
