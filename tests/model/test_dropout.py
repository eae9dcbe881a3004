"""Dropout by its definition: share, expectation, seed, and none where none is wanted."""

import pytest
import torch
from torch.nn import functional as F

from model.sublayers import Dropout, FeedForward


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(300, 333), (7, 11, 1301)])
def test_share_of_zeros_and_expectation(p: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(5)
    x = torch.ones(shape)
    out = Dropout(p).train()(x)
    n = x.numel()
    assert out.shape == x.shape
    deviation = (p * (1 - p) / n) ** 0.5
    share = (out == 0).float().mean().item()
    assert share == pytest.approx(p, abs=2**-14 + 5 * deviation)
    assert out.mean().item() == pytest.approx(1, abs=5 * deviation / (1 - p))
    assert len(out.unique()) == 2, "what is kept is scaled by one factor"


def test_identity_where_nothing_is_dropped() -> None:
    x = torch.randn(4, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_the_seed_makes_the_mask() -> None:
    x, dropout = torch.ones(1000), Dropout(0.4).train()
    torch.manual_seed(9)
    one, two = dropout(x), dropout(x)
    torch.manual_seed(9)
    assert torch.equal(dropout(x), one)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_is_the_mask(dtype: torch.dtype) -> None:
    x = torch.full((500,), 2.0, dtype=dtype, requires_grad=True)
    out = Dropout(0.25).train()(x)
    assert out.dtype == dtype
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    torch.testing.assert_close(x.grad * 2, out.detach(), rtol=0, atol=0)
    assert x.grad.max().item() == pytest.approx(1 / 0.75, rel=1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_a_feed_forward_drops_what_its_activation_gives(p: float, training: bool) -> None:
    torch.manual_seed(7)
    layer = FeedForward(5, 40, F.relu, p).train(training)
    x = torch.randn(3, 6, 5, requires_grad=True)
    torch.manual_seed(8)
    found = layer(x)
    torch.manual_seed(8)
    mask = layer.dropout(torch.ones(3, 6, 40))
    expected = F.linear(F.relu(F.linear(x, layer.inner.weight, layer.inner.bias)) * mask, layer.outer.weight)
    expected = expected + layer.outer.bias
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    inputs = (x, *layer.parameters())
    for one, other in zip(
        torch.autograd.grad(found, inputs, grad), torch.autograd.grad(expected, inputs, grad), strict=True
    ):
        torch.testing.assert_close(one, other)
