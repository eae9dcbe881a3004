"""First and last layers of a sub-layer, which take over what stands beside them."""

import importlib
from unittest.mock import MagicMock, call

import pytest
import torch
from torch import nn

from model.kernels.cuda import operators
from model.kernels.cuda.linear import can_join


def test_kernels_start_on_their_tensors_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton starts them on the current device, which may be another: their pointers would mean nothing there."""
    seen = MagicMock()
    monkeypatch.setattr(torch.cuda, "device", seen.device)
    monkeypatch.setattr(importlib, "import_module", lambda _: seen)
    x = torch.zeros(2)
    operators._on_gpu("some")(x, 1)
    device = call.device(x.device)
    assert seen.mock_calls == [
        device,
        call.device().__enter__(),
        call.some(x, 1),
        call.device().__exit__(None, None, None),
    ]


def test_layers_of_two_kinds_are_not_joined() -> None:
    assert can_join([nn.Linear(6, 4), nn.Linear(6, 2)])
    assert not can_join([nn.Linear(6, 4), nn.Linear(6, 4, bias=False)])
