"""The pseudo device itself: what it refuses, and what a meter counts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.device.pseudo import DEVICE, MODULE, metered

Operation = Callable[..., Any]
FILE = f"tests/device/{Path(__file__).name}"


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


def attend(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


MIXED: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "attention": lambda x, y: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], y[None, None]),
}


@pytest.mark.parametrize("operation", MIXED.values(), ids=MIXED)
def test_devices_are_not_mixed(operation: Operation) -> None:
    for one, other in ((ones(3, 3), torch.ones(3, 3)), (torch.ones(3, 3), ones(3, 3))):
        with pytest.raises(RuntimeError, match="same device"):
            operation(one, other)
    operation(ones(3, 3), ones(3, 3))


WAITS: dict[str, Operation] = {
    "item": lambda x: x.sum().item(),
    "if": lambda x: 1 if x.any() else 0,
    "cpu": lambda x: x.cpu(),
    "synchronize": lambda x: MODULE.synchronize(),
    "nonzero": lambda x: x.nonzero(),
}


@pytest.mark.parametrize("operation", WAITS.values(), ids=WAITS)
def test_waits_are_counted(operation: Operation) -> None:
    x = ones(2, 3)
    with metered() as meter:
        operation(x)
    assert meter.num_waits == 1, meter.waits
    [where] = meter.waits
    assert f" at {FILE}:" in where


BIAS = ones(2)
KERNELS: dict[str, tuple[int, Operation]] = {
    "views": (0, lambda x: x.view(3, 2).T[0].detach().flatten().unsqueeze(0).expand(4, 3).split(2)),
    "element by element": (3, lambda x: (x * 2 + 1).relu_()),
    "linear": (1, lambda x: nn.functional.linear(x, x, BIAS)),
    "all at once": (1, lambda x: torch._foreach_mul_([x, x.clone()][:1], 2)),
    "attention": (1, lambda x: attend(x.view(1, 1, 2, 3))),
}


@pytest.mark.parametrize(("number", "operation"), KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_kernels(number: int, operation: Operation, mode: Callable[[], Any]) -> None:
    with mode():
        x = ones(2, 3)
        with metered() as meter:
            operation(x)
    assert meter.num_kernels == number + (operation is KERNELS["all at once"][1]), meter.by_operator()
