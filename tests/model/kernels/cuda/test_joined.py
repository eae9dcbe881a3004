"""Linear layers of one input as one matmul."""

import pytest
import torch
from torch import nn

from model.kernels.cuda.linear import can_join, join


@pytest.mark.parametrize("bias", [True, False])
def test_results_and_gradients_are_those_of_the_layers(bias: bool) -> None:
    layers = [nn.Linear(6, width, bias=bias) for width in (4, 2, 5)]
    x = torch.randn(2, 3, 6, requires_grad=True)
    found = []
    for outs in (join({"all": layers})["all"](x), tuple(layer(x) for layer in layers)):
        weighted = torch.stack([(out * (i + 1)).square().sum() for i, out in enumerate(outs)]).sum()
        inputs = [x, *(p for layer in layers for p in layer.parameters())]
        found.append([*outs, *torch.autograd.grad(weighted, inputs)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_layers_of_two_kinds_are_not_joined() -> None:
    assert can_join([nn.Linear(6, 4), nn.Linear(6, 2)])
    assert not can_join([nn.Linear(6, 4), nn.Linear(6, 4, bias=False)])
