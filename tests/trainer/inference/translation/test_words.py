"""Words are what stands between spaces, however the tokenizer cuts them."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import TokenizerSection
from data_pipeline.preparation.tokenizing import train_tokenizer
from data_pipeline.tokenizer import Tokenizer
from tests.trainer.conftest import TrainedRun
from trainer.inference.translation.words import Attention, pharaoh, word_numbers


@pytest.fixture(scope="module")
def tokenizer(trained: TrainedRun) -> Tokenizer:
    return Tokenizer.load(trained.folder / "checkpoints" / "step-00000300")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.text("abeint éμ'.-日\xa0\u3000\u200b½ﷺ", max_size=40))
def test_words_of_a_line_are_what_its_own_spaces_separate(tokenizer: Tokenizer, line: str) -> None:
    """Not those of the normalised text, in which other characters are spaces or have some."""
    (ids,) = tokenizer.encode_source([line])
    numbers = tokenizer.word_numbers("source", line)
    assert len(numbers) == len(ids)
    seen = [n for n in numbers if n >= 0]
    assert seen == sorted(seen)
    words = [word for word in line.split(" ") if word]
    assert {n for n, word in enumerate(words) if word.strip("\xa0\u3000\u200b")} <= {*seen} <= {*range(len(words))}
    assert tokenizer.word_numbers("target", line) == numbers, "they share a vocabulary"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(3, 399), max_size=12))
def test_words_of_a_translation(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Any pieces in any order, unknown ones among them."""
    numbers = word_numbers(tokenizer.target_pieces(ids))
    assert len(numbers) == len(ids)
    assert max(numbers, default=-1) + 1 == len(tokenizer.decode_target([ids])[0].split())


def test_a_tag_is_a_word_of_its_own() -> None:
    section = TokenizerSection(vocab_size=60, threads=1, tags=[">>fra<<"])
    lines = [f"the cat {number} sat" for number in range(100)]
    tokenizer = train_tokenizer(section, lines, lines)
    assert tokenizer.word_numbers("source", ">>fra<< cat") == [0, *[1] * len(tokenizer.encode_source(["cat"])[0])]


def test_pharaoh() -> None:
    weights = np.zeros((2, 4, 3), dtype=np.float32)
    weights[0, 1:] = [[0, 1, 0], [0, 1, 0], [1, 0, 0]]
    weights[1, 1:] = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    attention = Attention(
        weights=weights, source_pieces=["\u2581a", "\u2581b", "</s>"], target_pieces=["\u2581x", "y", "\u2581z"],
        source_words=[0, 1, -1], target_words=[0, 0, 1],
    )  # fmt: skip
    assert pharaoh(attention) == pharaoh(attention, 1) == "1-0 0-1"
    assert pharaoh(attention, 2) == "0-0 1-1"
