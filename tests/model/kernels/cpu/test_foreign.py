"""Kernels over a model with parts of somebody else's: those are left as they are, correct and slower."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.components.multi_head import MultiHead
from model.kernels.cpu import decoding, training, use
from model.kernels.cpu.decoding import packed_weights
from model.sublayers import FeedForward
from tests.model.variants import Scaled


class Doubled(nn.Linear):
    """Twice what a linear layer gives."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class LeakyFeedForward(FeedForward):
    """With a leaky ReLU, whatever the activation."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(F.leaky_relu(self.inner(x)))
        return out


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaled(12, MultiHead(num_heads=3)),
        lambda: LeakyFeedForward(12, 20, F.relu, 0.0),
        lambda: nn.Sequential(Doubled(12, 12)),
    ],
    ids=["attention", "feed-forward", "linear"],
)
@pytest.mark.parametrize("by_onednn", [True, False])
def test_computes_the_same(make: Any, by_onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "_FP32_PREFERS_ONEDNN", by_onednn and decoding._HAS_ONEDNN)
    monkeypatch.setattr(training, "MIN_MACS", 1)
    module, x = make().eval(), torch.randn(2, 5, 12)
    inputs = (x, x) if isinstance(module, MultiHeadAttention) else (x,)
    kinds = {
        name: type(part) for name, part in module.named_modules() if type(part) in (Scaled, Doubled, LeakyFeedForward)
    }
    with torch.inference_mode():
        plain = module(*inputs)
        use(module)
        torch.testing.assert_close(module(*inputs), plain, rtol=2e-6, atol=2e-6)
        with packed_weights([module]):
            torch.testing.assert_close(module(*inputs), plain, rtol=2e-6, atol=2e-6)
    assert kinds
    assert all(type(module.get_submodule(name)) is kind for name, kind in kinds.items())
