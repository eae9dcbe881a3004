"""What is changed in DeepSpeed, and what is done where it cannot be."""

import logging
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from deepspeed.accelerator import cuda_accelerator

from tests.forked import Forked
from tests.trainer.stability.engine_checks import make_engine, train
from trainer.engines.deepspeed import patches
from trainer.ranks.distributed import World


@pytest.mark.parametrize("visible", ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-a", "3"])
def test_free_memory_of_gpus_by_name(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed asks for it where stages 1 and 2 start; on a machine with NVML."""
    kind = cuda_accelerator.CUDA_Accelerator
    monkeypatch.setattr(kind, "available_memory", kind.available_memory)
    patches.ask_torch_for_memory()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(cuda_accelerator, "pynvml", mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 if device == 0 else 7, 10))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    accelerator = kind()
    assert (accelerator.available_memory(), accelerator.available_memory(1)) == (5, 7)


def with_another_version(world: World) -> dict[str, Any]:
    """As a rank: an engine of a DeepSpeed that has renamed something."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    patches.log.addHandler(handler)
    patches.keep_out_shared_memory_op()  # to build it takes minutes
    losses = []
    renamed = (("deepspeed.comm.torch:Renamed", "x"), ("deepspeed.comm", "new_group", "gone"))
    for more in ({}, {"another": renamed}):
        with mock.patch.dict(patches.NEEDS, more):
            engine = make_engine(1, "fp32", world)
        losses.append((engine._stage.averages, train(engine, world, updates=3)))
        engine.close()
    return {"said": said, "losses": losses}


def test_another_version_is_gone_on_with_unchanged(forked: Forked, tmp_path: Path) -> None:
    """A warning says what it lacks."""
    for result in forked.ranks(2, with_another_version, cwd=tmp_path):
        (is_plain, losses), (is_changed, others) = result["losses"]
        assert (is_plain, is_changed) == (False, True)
        assert others == pytest.approx(losses, rel=1e-5)
        [line] = result["said"]
        assert ": deepspeed.comm.torch:Renamed, deepspeed.comm: gone; " in line
        assert line.endswith("as with engine.plain_deepspeed=true")
