"""Attention of given translations, and the alignment that it says."""

import numpy as np
import pytest
import torch

from model.search.alignment import align_words, cross_attention, default_layer
from tests.model.reference import BOS, pad
from tests.model.search.plain import SOURCES, peaked_model


def test_cross_attention_is_that_of_each_sentence_alone() -> None:
    model = peaked_model(3, decoder_layers=2)
    targets = [[3, 4, 4], [], [5, 3, 6, 6], [6]]
    found = cross_attention(model, pad(SOURCES, width=9), targets)
    for source, target, weights in zip(SOURCES, targets, found, strict=True):
        assert weights.shape == (2, len(target) + 1, len(source))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        alone = model.attention_weights(torch.tensor([source]), torch.tensor([[BOS, *target]])).cross
        np.testing.assert_allclose(weights, torch.cat(alone).mean(1).numpy(), atol=1e-5)


def test_words_of_several_pieces() -> None:
    """Source: words 0 0 1 and EOS; target: words 0 1 1."""
    weights = np.array(
        [
            [0.2, 0.3, 0.4, 0.1],  # the largest single piece is of word 1, the largest word is word 0
            [0.1, 0.1, 0.3, 0.5],  # EOS is no word
            [0.3, 0.2, 0.5, 0.0],
        ],
        dtype=np.float32,
    )
    assert align_words(weights, [0, 0, 1, -1], [0, 1, 1]) == [(0, 0), (1, 1)]


@pytest.mark.parametrize(("source", "target"), [([-1], [0]), ([0, -1], [])])
def test_nothing_to_align(source: list[int], target: list[int]) -> None:
    weights = np.full((len(target), len(source)), 1.0, dtype=np.float32)
    assert align_words(weights, source, target) == []


@pytest.mark.parametrize(("num_layers", "layer"), [(1, 1), (2, 1), (3, 2), (6, 3), (12, 6)])
def test_default_layer(num_layers: int, layer: int) -> None:
    assert default_layer(num_layers) == layer
