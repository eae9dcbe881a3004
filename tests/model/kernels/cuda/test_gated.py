"""SwiGLU as one matmul and one kernel each way: fp64, gradients, kernels that are launched."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model.kernels.cuda import use
from model.kernels.cuda.gated import CudaGatedFeedForward, GatedLinear, SwiGlu
from model.kernels.cuda.linear import join
from tests.device.pseudo import DEVICE, metered
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted
from tests.model.reference import tiny_model, tiny_section

OFF = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
CASES = [(5, 12, "float32"), (3, 70, "float32"), (4, 33, "bfloat16"), (2, 64, "float16"), (1, 1, "float32")]


@interpreted.needed
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path) -> None:
    [found] = interpreter.ranks(1, interpreted.gates, CASES, cwd=tmp_path, meet=False)
    for case, row in zip(CASES, found, strict=True):
        assert max(row.values()) <= OFF[case[2]], (case, row)


def layer_of(*, bias: bool) -> Any:
    section = tiny_section(activation="swiglu", feed_forward_bias=bias)
    layer: Any = tiny_model(section).encoder.layers[0]
    return layer.feed_forward.train()


@pytest.mark.parametrize("bias", [True, False])
def test_gradients(bias: bool) -> None:
    """Those of the plain layer, with the matmuls apart and with one."""
    plain = layer_of(bias=bias)
    x = torch.randn(2, 3, 12, requires_grad=True)
    layers = plain.gate, plain.inner
    parameters = [p for layer in layers for p in layer.parameters()]
    joined = join({"": layers})[""]
    outs: list[Tensor] = [
        torch.nn.functional.silu(plain.gate(x)) * plain.inner(x),
        SwiGlu.apply(plain.gate(x), plain.inner(x)),  # type: ignore[no-untyped-call]
        GatedLinear.apply(x, joined.weight, joined.bias, *joined.parameters),  # type: ignore[no-untyped-call]
    ]
    weights = torch.randn_like(outs[0])
    found = [[out, *torch.autograd.grad((out * weights).sum(), [x, *parameters])] for out in outs]
    for ours in found[1:]:
        for one, other in zip(ours, found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_kernels_of_a_layer_by_itself() -> None:
    """One forward beside three matmuls, and one backward beside six; without gradients the plain layer."""
    layer = layer_of(bias=False)
    use(layer)
    assert type(layer) is CudaGatedFeedForward
    layer.to(DEVICE)
    x = torch.randn(2, 3, 12).to(DEVICE).requires_grad_()
    with metered() as forward:
        out = layer(x)
    with metered() as backward:
        out.backward(out.detach())
    assert forward.by_operator() == {"mm": 3, "zeromt::swiglu": 1}
    assert backward.by_operator()["zeromt::swiglu_backward"] == 1
    assert backward.by_operator()["mm"] == 6
    with torch.no_grad(), metered() as search:
        layer(x)
    assert not search.by_operator()["zeromt::swiglu"]
