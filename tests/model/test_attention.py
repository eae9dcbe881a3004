"""Attention on a CPU against torch's fused kernel, which takes its place elsewhere, and against torch's own module."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention, attend, padding_bias
from model.components.multi_head import MultiHead
from model.dropout import Dropout

NO_DROPOUT = Dropout(0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["open", "padding", "causal"])
def test_plain_steps_are_the_fused_kernel(kind: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(3, 2, 5, 4, generator=generator).to(dtype) for _ in range(3))
    is_padding = torch.tensor([[False] * 5, [False, True, True, True, True], [True] * 5])
    bias = padding_bias(is_padding, dtype) if kind == "padding" else None
    ours = attend(query, key, value, bias, is_causal=kind == "causal", dropout=NO_DROPOUT)
    theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, is_causal=kind == "causal")
    tolerance = 1e-6 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


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


def test_heads_are_those_of_torch() -> None:
    ours, theirs = MultiHeadAttention(12, MultiHead(num_heads=3)), nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(std=0.5)
    for kind in ("weight", "bias"):
        weights = ours.state_dict()
        packed = torch.cat([weights[f"{part}.{kind}"] for part in ("query", "key", "value")])
        theirs.load_state_dict({f"in_proj_{kind}": packed, f"out_proj.{kind}": weights[f"output.{kind}"]}, strict=False)
    queries, memory = torch.randn(2, 4, 12), torch.randn(2, 6, 12)
    is_padding = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])
    expected, _ = theirs(queries, memory, memory, key_padding_mask=is_padding)
    got = ours(queries, memory, padding_bias(is_padding, torch.float32))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
