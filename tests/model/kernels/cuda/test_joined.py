"""Linear layers of one input as one matmul."""

import pytest
import torch
from torch import nn

from model.kernels.cuda.linear import can_join, joined_linear


@pytest.mark.parametrize("bias", [True, False])
def test_results_and_gradients_are_those_of_the_layers(bias: bool) -> None:
    layers = [nn.Linear(6, width, bias=bias) for width in (4, 2, 5)]
    x = torch.randn(2, 3, 6, requires_grad=True)
    found = []
    for outs in (joined_linear(x, layers), tuple(layer(x) for layer in layers)):
        weighted = torch.stack([(out * (i + 1)).square().sum() for i, out in enumerate(outs)]).sum()
        inputs = [x, *(p for layer in layers for p in layer.parameters())]
        found.append([*outs, *torch.autograd.grad(weighted, inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_what_others_wait_for_is_called() -> None:
    """ZeRO-3 gathers a layer's weight when it is called."""
    layers = [nn.Linear(6, 4) for _ in range(2)]
    calls = []
    layers[1].register_forward_pre_hook(lambda *_: calls.append(1))
    assert not can_join(layers)
    joined_linear(torch.randn(3, 6), layers)
    assert calls == [1]
    assert not can_join([nn.Linear(6, 4), nn.Linear(6, 4, bias=False)])
