"""Keys of DeepSpeed that the ranks that there are cannot have: named before it is imported."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from configs import EngineSection, UserError
from trainer.ranks.checks import check_engine


def world(size: int, device: str = "cpu") -> Any:
    return SimpleNamespace(size=size, device=torch.device(device))


def test_groups_by_the_machines_that_torchrun_names(monkeypatch: pytest.MonkeyPatch) -> None:
    section = EngineSection(zero_stage=3, zero_optimization={"zero_hpz_partition_size": 4})
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    check_engine(section, world(8))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    check_engine(section, world(16))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "6")
    with pytest.raises(UserError, match="4 with 12 ranks, 6 on each machine"):
        check_engine(section, world(12))


@pytest.mark.parametrize("key", ["zero_quantized_weights", "zero_quantized_gradients"])
def test_a_gpu_without_a_toolkit_cannot_quantize(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = EngineSection(zero_stage=3, zero_optimization={key: True})
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    with pytest.raises(UserError, match=f"{key}: true without a CUDA toolkit, by which DeepSpeed compiles"):
        check_engine(section, world(8, "cuda"))
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", "/usr/local/cuda")
    check_engine(section, world(8, "cuda"))
