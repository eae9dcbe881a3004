"""Words are what stands between spaces, however the tokenizer cuts them."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_pipeline.tokenizer import EOS_ID, Tokenizer
from tests.trainer.conftest import TrainedRun
from trainer.inference.translation.words import Attention, pharaoh, word_numbers


@pytest.fixture(scope="module")
def tokenizer(trained: TrainedRun) -> Tokenizer:
    return Tokenizer.load(trained.folder / "checkpoints" / "step-00000300")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.text("abeint éμ'.-日", max_size=40))
def test_words_of_a_source(tokenizer: Tokenizer, line: str) -> None:
    (ids,) = tokenizer.encode_source([line])
    pieces = tokenizer.source_pieces([*ids, EOS_ID])
    numbers = word_numbers(pieces, is_source=True)
    assert len(numbers) == len(pieces)
    assert numbers[-1] == -1
    assert max(numbers) + 1 == len(line.split())
    seen = [n for n in numbers if n >= 0]
    assert sorted(set(seen)) == list(range(len(line.split())))
    assert seen == sorted(seen)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ids=st.lists(st.integers(3, 399), max_size=12))
def test_words_of_a_translation(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Any pieces in any order, unknown ones among them."""
    numbers = word_numbers(tokenizer.target_pieces(ids), is_source=False)
    assert len(numbers) == len(ids)
    assert max(numbers, default=-1) + 1 == len(tokenizer.decode_target([ids])[0].split())


def test_a_tag_is_a_word_of_its_own() -> None:
    assert word_numbers([">>fra<<", "\u2581He", "llo", "</s>"], is_source=True) == [0, 1, 1, -1]


def test_pharaoh() -> None:
    weights = np.zeros((2, 4, 3), dtype=np.float32)
    weights[0, 1:] = [[0, 1, 0], [0, 1, 0], [1, 0, 0]]
    weights[1, 1:] = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    attention = Attention(
        weights=weights, source_pieces=["\u2581a", "\u2581b", "</s>"], target_pieces=["\u2581x", "y", "\u2581z"]
    )
    assert pharaoh(attention) == pharaoh(attention, 1) == "1-0 0-1"
    assert pharaoh(attention, 2) == "0-0 1-1"
