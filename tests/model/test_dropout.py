"""Dropout by its definition: share, expectation, seed, and none where none is wanted."""

import pytest
import torch

from model.sublayers import Dropout


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_is_the_mask(dtype: torch.dtype) -> None:
    x = torch.full((500,), 2.0, dtype=dtype, requires_grad=True)
    out = Dropout(0.25).train()(x)
    assert out.dtype == dtype
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    torch.testing.assert_close(x.grad * 2, out.detach(), rtol=0, atol=0)
    assert x.grad.max().item() == pytest.approx(1 / 0.75, rel=1e-6 if dtype == torch.float32 else 4e-3)
