"""The check of kernels for GPUs: plain implementations pass, and one that is wrong or does not start is found."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from model.kernels import check
from tests.device.pseudo import DEVICE
from trainer.ranks import precision
from trainer.ranks.precision import agreed_kernels, working_kernels

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    check.problem.cache_clear()
    working_kernels.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_passes(dtype: torch.dtype) -> None:
    state = torch.get_rng_state()
    assert check.problem(CPU, dtype) == ""
    assert check.problem(DEVICE, dtype) == ""
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("wrong", [0.5, float("nan")])
def test_a_wrong_kernel_is_found(wrong: float, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.ops.zeromt.drop

    def drop(x: Tensor, *rest: Any) -> Tensor:
        out: Tensor = right(x, *rest)
        return out * wrong if x.dtype == torch.bfloat16 else out

    monkeypatch.setattr(torch.ops.zeromt, "drop", drop)
    assert " of its size off" in check.problem(CPU, torch.bfloat16)


def test_one_that_does_not_start_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.zeromt, "drop", Mock(side_effect=RuntimeError("no image\nfor this card")))
    assert check.problem(CPU, torch.bfloat16) == "RuntimeError: no image for this card"


def test_ranks_agree(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(precision, "problem", lambda *_: "it is off")
    monkeypatch.setattr(precision, "has_kernels", lambda _: True)
    world: Any = Mock(device=DEVICE, gather=lambda item: ["auto", item])
    assert agreed_kernels("auto", "bf16", world) == "plain"
    assert "engine.kernels: plain" in caplog.text
    assert "it is off" in caplog.text
    assert agreed_kernels("cuda", "bf16", Mock(device=DEVICE, gather=lambda item: [item])) == "cuda"
    assert working_kernels("auto", CPU, torch.float32) == "auto"
