"""The feed-forward sub-layer in one function, beside its layers one after the other."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from model.kernels.cpu import training, use
from model.sublayers import Activation, FeedForward

HUGE = 1 << 60


def feed_forward(p: float, *, activation: Activation = F.relu, bias: bool = True) -> FeedForward:
    """A small one, with kernels."""
    layer = FeedForward(6, 24, activation, p, bias=bias)
    use(layer)
    return layer


def run(
    layer: FeedForward, x: Tensor, grad: Tensor, least: int, monkeypatch: pytest.MonkeyPatch, *, again: bool = False
) -> list[Tensor | None]:
    """Output and gradients, with products that are large from `least` multiplications on."""
    monkeypatch.setattr(training, "MIN_MACS", least)
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
def test_the_same_in_one_function(
    p: float, in_training: bool, bias: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    layer = feed_forward(p, bias=bias).train(in_training)
    x, grad = torch.randn(*shape, 6), torch.randn(*shape, 6)
    wanted = run(layer, x, grad, HUGE, monkeypatch)
    for again in (False, True):
        found = run(layer, x, grad, 1, monkeypatch, again=again)
        torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["inner.weight", "inner.bias", "outer.weight", "outer.bias"])
def test_some_frozen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = feed_forward(0.3)
    layer.get_parameter(name).requires_grad_(False)
    run(layer, torch.randn(5, 6), torch.randn(5, 6), 1, monkeypatch)
    assert [key for key, p in layer.named_parameters() if p.grad is None] == [name]


def test_it_is_one_function_and_keeps_one_inner_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MIN_MACS", 1)
    layer = feed_forward(0.3)
    kept: list[Tensor] = []

    def note(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        out = layer(torch.randn(32, 6))
    assert type(out.grad_fn).__name__ == "_ReluFeedForwardBackward"
    assert [tuple(x.shape) for x in kept] == [(32, 6), (24, 6), (32, 24), (6, 24)]


def test_a_layer_with_hooks_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MIN_MACS", 1)
    layer = feed_forward(0.0)
    called: list[Tensor] = []
    layer.outer.register_forward_hook(lambda _, args, out: called.append(out))
    out = layer(torch.randn(5, 6))
    assert len(called) == 1
    assert called[0] is out
