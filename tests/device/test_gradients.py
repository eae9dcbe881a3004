"""Gradients in half precision, summed in fp32: on a CPU one by one, on a device laid side by side."""

import pytest
import torch
from torch import nn

from tests.device.pseudo import DEVICE, metered
from trainer.engines.deepspeed import steps
from trainer.engines.deepspeed.steps import GradientSum, clip_scale


@pytest.mark.parametrize("bucket", [1, 9, 50_000_000], ids=["one each", "some", "all"])
@pytest.mark.parametrize("device", [torch.device("cpu"), DEVICE], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_are_those_of_autograd(
    dtype: torch.dtype, device: torch.device, bucket: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, with parameters that a micro-batch does not use and whatever fits a piece."""
    monkeypatch.setattr(steps, "BUCKET_ELEMENTS", bucket)
    draw = torch.Generator().manual_seed(3)
    shapes = ((3, 4), (5,), (), (2, 1, 3))
    ours, theirs = (
        [nn.Parameter(torch.zeros(shape, dtype=dtype, device=device)) for shape in shapes] for _ in range(2)
    )
    for parameter in theirs:
        parameter.grad_dtype = torch.float32
    sums = GradientSum(ours)
    for unused in (None, 1, None, 3):
        factors = [torch.randn(shape, generator=draw).to(device, dtype) for shape in shapes]
        for parameters in (ours, theirs):
            used = [(p, f) for n, (p, f) in enumerate(zip(parameters, factors, strict=True)) if n != unused]
            torch.autograd.backward([(p * f).sum() for p, f in used])
        sums.add()
        assert all(p.grad is None for p in ours)
    for parameter, view in zip(theirs, sums.views, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, view)
    assert torch.equal(torch.cat([view.flatten() for view in sums.views]), sums.flat)


def test_a_device_launches_two_kernels() -> None:
    """Whatever the number of parameters."""
    parameters = [nn.Parameter(torch.ones(n + 1, dtype=torch.bfloat16, device=DEVICE)) for n in range(100)]
    sums = GradientSum(parameters)
    torch.autograd.backward([p.sum() for p in parameters])
    with metered() as meter:
        sums.add()
    assert meter.by_operator() == {"cat": 1, "add_": 1}


def test_sums_in_place_of_a_tensor_that_is_longer() -> None:
    flat = torch.zeros(8)
    parameter = nn.Parameter(torch.ones(2, 3, dtype=torch.bfloat16))
    sums = GradientSum([parameter], flat)
    torch.autograd.backward((2 * parameter).sum())
    sums.add()
    assert flat.tolist() == [2.0] * 6 + [0.0] * 2
    assert sums.flat is flat


@pytest.mark.parametrize(
    ("norm", "clip_norm", "scale"), [(0.5, 1.0, 1.0), (4.0, 1.0, 0.25), (4.0, 0.0, 1.0), (0.0, 1.0, 1.0)]
)
def test_what_is_clipped(norm: float, clip_norm: float, scale: float) -> None:
    assert clip_scale(norm, clip_norm) == pytest.approx(scale, rel=1e-6)
