"""The accuracy of held-out tokens, against torch's own argmax over all logits at once."""

from typing import Any, cast

import pytest
import torch

from data_pipeline.tokenizer import PAD_ID
from trainer.evaluation import evaluator
from trainer.evaluation.evaluator import _num_correct


class Projecting:
    """An output layer alone."""

    def __init__(self) -> None:
        self.weight = torch.randn(11, 8)
        self.most = 0

    def output(self, hidden: torch.Tensor) -> torch.Tensor:
        self.most = max(self.most, len(hidden))
        return hidden @ self.weight.T


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_it_counts_what_argmax_finds(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    monkeypatch.setattr(evaluator, "ACCURACY_ROWS", rows)
    model, hidden_BTD = Projecting(), torch.randn(3, 5, 8)
    target_BT = (hidden_BTD @ model.weight.T).argmax(-1)
    target_BT[0, 1] = (target_BT[0, 1] + 1) % 11
    target_BT[1:, 3:] = PAD_ID
    expected = int(((hidden_BTD @ model.weight.T).argmax(-1) == target_BT)[target_BT != PAD_ID].sum())
    assert 0 < expected < 15 - 4
    assert _num_correct(cast(Any, model), hidden_BTD, target_BT) == expected
    assert model.most <= rows
