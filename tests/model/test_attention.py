"""Attention on a CPU against torch's fused kernel, which takes its place elsewhere, and against torch's own module."""

import pytest
import torch

from model.attention import attend, padding_bias
from model.sublayers import Dropout

NO_DROPOUT = Dropout(0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_padding_has_no_weight_at_all(dtype: torch.dtype) -> None:
    query, key = torch.full((1, 1, 2, 4), 3.0, dtype=dtype), torch.full((1, 1, 3, 4), 5.0, dtype=dtype)
    key[:, :, 2] = -5.0
    value = torch.tensor([[1.0], [2.0], [4.0]], dtype=dtype).expand(1, 1, 3, 1)
    bias = padding_bias(torch.tensor([[True, True, False]]), dtype)
    out = attend(query, key, value, bias, is_causal=False, dropout=NO_DROPOUT)
    assert (out == 4).all(), "a score of -30 seen against 30 hidden"


def test_dropout_is_on_the_weights() -> None:
    query = key = value = torch.ones(1, 1, 64, 64)
    torch.manual_seed(1)
    out = attend(query, key, value, None, is_causal=False, dropout=Dropout(0.5).train())
    columns_are_alike = (out == out[..., :1]).all()
    assert columns_are_alike, "a weight is dropped for the whole value"
    assert len(set(out[0, 0, :, 0].tolist())) > 5
    assert out.mean().item() == pytest.approx(1, abs=0.1)
