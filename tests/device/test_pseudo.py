"""The pseudo device itself: what it refuses, and what a meter counts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.device.pseudo import DEVICE, MODULE, PseudoTensor, metered

Operation = Callable[..., Any]
FILE = f"tests/device/{Path(__file__).name}"


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device=DEVICE)


def attend(x: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(x, x, x)


def test_tensors_say_where_they_are() -> None:
    for x in (ones(2), torch.tensor([1.0, 2.0], device="pseudo"), torch.zeros(3).to(DEVICE), ones(2).new_zeros(3)):
        assert isinstance(x, PseudoTensor)
        assert x.device == DEVICE
        assert x.is_cpu is False
    assert type(ones(2).cpu()) is Tensor
    assert ones(2).cpu().device.type == "cpu"


MIXED: dict[str, Operation] = {
    "add": lambda x, y: x + y,
    "add in place": lambda x, y: x.add_(y),
    "product": lambda x, y: x @ y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "embedding": lambda x, y: nn.functional.embedding(y.long(), x),
    "attention": lambda x, y: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], y[None, None]),
    "foreach": lambda x, y: torch._foreach_add([x], [y]),
}


@pytest.mark.parametrize("operation", MIXED.values(), ids=MIXED)
def test_devices_are_not_mixed(operation: Operation) -> None:
    for one, other in ((ones(3, 3), torch.ones(3, 3)), (torch.ones(3, 3), ones(3, 3))):
        with pytest.raises(RuntimeError, match="same device"):
            operation(one, other)
    operation(ones(3, 3), ones(3, 3))


def test_a_number_of_the_host_is_taken() -> None:
    assert (ones(2) * torch.tensor(3.0)).tolist() == [3.0, 3.0]


WAITS: dict[str, Operation] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "if": lambda x: 1 if x.any() else 0,
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", torch.float64),
    "copy_": lambda x: torch.zeros(2, 3).copy_(x),
    "synchronize": lambda x: MODULE.synchronize(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "set by a mask": lambda x: x.__setitem__(x > 0, ones(6)),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x + 1),
    "repeat": lambda x: x.repeat_interleave(torch.ones(2, dtype=torch.long, device=DEVICE), dim=0),
}


@pytest.mark.parametrize("operation", WAITS.values(), ids=WAITS)
def test_waits_are_counted(operation: Operation) -> None:
    x = ones(2, 3)
    with metered() as meter:
        operation(x)
    assert meter.num_waits == 1, meter.waits
    [where] = meter.waits
    assert f" at {FILE}:" in where


def test_what_does_not_wait() -> None:
    x, there = ones(2, 3), torch.zeros(2, 3).pin_memory()
    with metered() as meter:
        there.copy_(x, non_blocking=True)
        x.to("cpu", non_blocking=True)
        x.repeat_interleave(2, dim=0)
        x[torch.arange(2, device=DEVICE)]
        x[x > 2] = 0.0
        assert x.is_contiguous()
        assert len(x.sum(0)) == 3
    assert not meter.waits
    assert torch.equal(there, torch.ones(2, 3))


def test_uploads() -> None:
    """What the host hands over while it waits, or out of memory that may be swapped."""
    pinned = torch.ones(3).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(3).is_pinned()
    operations: list[tuple[int, Operation]] = [
        (0, lambda: pinned.to(DEVICE, non_blocking=True)),
        (1, lambda: pinned.to(DEVICE)),
        (1, lambda: torch.ones(3).to(DEVICE, non_blocking=True)),
        (1, lambda: torch.tensor([1, 2], device=DEVICE)),
        (1, lambda: ones(3)[torch.tensor([1, 2])]),
    ]
    for number, operation in operations:
        with metered() as meter:
            operation()
        assert meter.uploads.total() == number
        assert not meter.waits


BIAS = ones(2)
KERNELS: dict[str, tuple[int, Operation]] = {
    "views": (0, lambda x: x.view(3, 2).T[0].detach().flatten().unsqueeze(0).expand(4, 3).split(2)),
    "empty": (0, lambda x: (torch.empty(3, device=DEVICE), torch.empty_like(x), x.new_empty(3))),
    "nothing in it": (0, lambda x: x[:0] + 1),
    "zeros": (1, lambda x: torch.zeros(3, device=DEVICE)),
    "element by element": (3, lambda x: (x * 2 + 1).relu_()),
    "linear": (1, lambda x: nn.functional.linear(x, x, BIAS)),
    "copy of what lies apart": (1, lambda x: x.T.contiguous()),
    "cast": (1, lambda x: x.bfloat16()),
    "no cast": (0, lambda x: x.float()),
    "all at once": (1, lambda x: torch._foreach_mul_([x, x.clone()][:1], 2)),
    "attention": (1, lambda x: attend(x.view(1, 1, 2, 3))),
    "dropout": (1, lambda x: nn.functional.dropout(x, 0.5)),
}


@pytest.mark.parametrize(("number", "operation"), KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_kernels(number: int, operation: Operation, mode: Callable[[], Any]) -> None:
    with mode():
        x = ones(2, 3)
        with metered() as meter:
            operation(x)
    assert meter.num_kernels == number + (operation is KERNELS["all at once"][1]), meter.by_operator()


def test_backward_is_counted() -> None:
    x = ones(1, 1, 4, 8).requires_grad_()
    out = attend(x).sum()
    with metered() as meter:
        torch.autograd.backward(out)
    assert meter.by_operator()["_scaled_dot_product_fused_attention_overrideable_backward"] == 3


def test_bytes_and_flops() -> None:
    x, y = ones(4, 8), ones(8, 16)
    with metered() as meter:
        x @ y
        x.add_(1)
        ones(1, 8).expand(4, 8) + x
    product, added, broadcast = [call for call in meter.calls if call.operator in ("mm", "add_", "add")]
    assert (product.flops, product.bytes) == (2 * 4 * 8 * 16, 4 * (4 * 8 + 8 * 16 + 4 * 16))
    assert (added.flops, added.bytes) == (0, 2 * 4 * 4 * 8)
    assert broadcast.bytes == 4 * (8 + 4 * 8 + 4 * 8)


def test_tensors_change_their_sizes_in_place() -> None:
    x = ones(2, 3)
    assert x.t_().shape == (3, 2)
    assert x.resize_(7).shape == (7,)
    assert x.unsqueeze_(0).stride() == (7, 1)
    parameter = nn.Parameter(ones(2, 3))
    parameter.data = torch.zeros(5, device=DEVICE)
    assert parameter.tolist() == [0.0] * 5
    assert isinstance(parameter, nn.Parameter)


def test_views_share_memory() -> None:
    x = torch.zeros(2, 3, device=DEVICE)
    x.view(-1)[4:].fill_(1)
    x[0].add_(2)
    assert x.tolist() == [[2, 2, 2], [0, 1, 1]]


def test_a_module_is_moved_as_it_is() -> None:
    """Its parameters stay the same objects, and layers that share one go on sharing it."""
    module = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    module["a"].weight = module["b"].weight
    before = list(module.parameters())
    module.to(DEVICE)
    assert all(one is other for one, other in zip(module.parameters(), before, strict=True))
    assert module["a"].weight is module["b"].weight
    assert isinstance(module["a"].weight, PseudoTensor)
    assert isinstance(module["a"].weight, nn.Parameter)


def test_inference_mode() -> None:
    x = ones(2, 3)
    with torch.inference_mode():
        made, view = x + 1, x[0]
        assert torch.arange(3, device=DEVICE).resize_(2).tolist() == [0, 1]
    assert made.is_inference()
    assert not view.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors"):
        nn.Parameter(ones(2, 3)).mul(made)
