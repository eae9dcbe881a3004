"""The feed-forward sub-layer in one function, beside its layers one after the other."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.kernels.cpu import training, use
from model.sublayers import Activation, FeedForward


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, of which small ones are not one function."""
    monkeypatch.setattr(training, "MIN_MACS", 1)


def feed_forward(p: float, *, activation: Activation = F.relu, bias: bool = True) -> FeedForward:
    """A small one, with kernels."""
    layer = FeedForward(6, 24, activation, p, bias=bias)
    use(layer)
    return layer


def run(layer: FeedForward, x: Tensor, grad: Tensor, *, again: bool = False) -> list[Tensor | None]:
    """Output and gradients."""
    torch.manual_seed(5)
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = checkpoint(layer, x, use_reentrant=False) if again else layer(x)
    assert isinstance(out, Tensor)
    out.backward(grad)  # type: ignore[no-untyped-call]
    return [out.detach(), x.grad, *(None if p.grad is None else p.grad.clone() for p in layer.parameters())]


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize("in_training", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (33,), (3, 13)], ids=str)
def test_the_same_in_one_function(p: float, in_training: bool, bias: bool, shape: tuple[int, ...]) -> None:
    """As by its layers, which are called where they have hooks."""
    torch.manual_seed(1)
    layer = feed_forward(p, bias=bias).train(in_training)
    x, grad = torch.randn(*shape, 6), torch.randn(*shape, 6)
    called: list[Any] = []
    hook = layer.outer.register_forward_hook(lambda *_: called.append(_))
    wanted = run(layer, x, grad)
    hook.remove()
    for again in (False, True):
        torch.testing.assert_close(run(layer, x, grad, again=again), wanted, rtol=2e-6, atol=2e-6)
    assert len(called) == 1


@pytest.mark.parametrize("name", ["inner.weight", "inner.bias", "outer.weight", "outer.bias"])
def test_some_frozen(name: str) -> None:
    layer = feed_forward(0.3)
    layer.get_parameter(name).requires_grad_(False)
    run(layer, torch.randn(5, 6), torch.randn(5, 6))
    assert [key for key, p in layer.named_parameters() if p.grad is None] == [name]


def test_it_is_one_function_and_keeps_one_inner_width() -> None:
    layer = feed_forward(0.3)
    kept: list[Tensor] = []

    def note(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        out = layer(torch.randn(32, 6))
    assert type(out.grad_fn).__name__ == "_ReluFeedForwardBackward"
    assert [tuple(x.shape) for x in kept] == [(32, 6), (24, 6), (32, 24), (6, 24)]
