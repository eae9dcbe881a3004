"""Rotary positions of queries and keys by one kernel: fp64, gradients, and what a pass launches."""

from pathlib import Path

import torch

from model.kernels.cuda.rotary import Rotate
from model.positions import Rotation
from tests.device.pseudo import DEVICE, metered
from tests.forked import Forked
from tests.model.kernels.cuda import interpreted

OFF = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}
CASES = [
    (5, 2, 2, 4, "float32"),
    (3, 4, 2, 6, "float32"),
    (4, 3, 1, 10, "bfloat16"),
    (2, 2, 2, 64, "float16"),
    (1, 1, 1, 2, "float32"),
]


@interpreted.needed
def test_triton_under_its_interpreter(interpreter: Forked, tmp_path: Path) -> None:
    [found] = interpreter.ranks(1, interpreted.rotations, CASES, cwd=tmp_path, meet=False)
    for case, row in zip(CASES, found, strict=True):
        assert max(row.values()) <= OFF[case[4]], (case, row)


def test_results_and_gradients_are_those_of_the_plain_module() -> None:
    """Of a part of a projection, at any position; one kernel each way."""
    module = Rotation(20, 6, base=50.0)
    places = torch.zeros(7, 4, dtype=torch.int32)
    places[:, 3] = torch.tensor([0, 1, 2, 0, 1, 19, 7])
    query, key = torch.split(torch.randn(7, 5, 6), [3, 2], 1)
    weights = torch.split(torch.randn(7, 5, 6), [3, 2], 1)
    found = []
    for way in ("plain", "ours"):
        leaves = [x.clone().requires_grad_() for x in (query, key)]
        if way == "plain":
            outs = [module(x.transpose(0, 1)[None], places[:, 3])[0].transpose(0, 1) for x in leaves]
        else:
            outs = Rotate.apply(*leaves, module.table, places)  # type: ignore[no-untyped-call]
        loss = sum((out * weight).sum() for out, weight in zip(outs, weights, strict=True))
        found.append([*outs, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    there = [x.detach().to(DEVICE).requires_grad_() for x in (query, key)]
    with metered() as meter:
        outs = Rotate.apply(*there, module.table.to(DEVICE), places.to(DEVICE))  # type: ignore[no-untyped-call]
        torch.autograd.backward(outs, [w.to(DEVICE) for w in weights])
    assert meter.by_operator()["zeromt::rotate"] == 2
