"""What is changed in DeepSpeed; tests/private_names.py lists what the changes lean on."""

from pathlib import Path
from unittest import mock

import pytest
import torch
from deepspeed.accelerator import cuda_accelerator
from torch import distributed

from tests.forked import Forked
from trainer.engines.deepspeed.patches import gather_by_broadcasts
from trainer.ranks.distributed import World


def gather(world: World) -> int:
    """As one of several ranks, by broadcasts and by torch's own; how often they were compared."""
    outer = distributed.new_group([0, world.size - 1])
    num_compared = 0
    for group, size in ((None, world.size), (outer, 2)):
        if group is not None and world.rank not in (0, world.size - 1):
            continue
        own = distributed.get_rank(group)
        for dtype in (torch.float32, torch.bfloat16):
            for is_in_place in (False, True):
                for is_async in (False, True):
                    part = (torch.arange(7) + 10.5 * world.rank).to(dtype)
                    expected, found = (torch.full((7 * size,), -1.0, dtype=dtype) for _ in range(2))
                    distributed.all_gather_into_tensor(expected, part, group=group)
                    if is_in_place:
                        found[7 * own : 7 * own + 7] = part
                        part = found[7 * own : 7 * own + 7]
                    work = gather_by_broadcasts(found, part, group=group, async_op=is_async)
                    if is_async:
                        assert work is not None
                        work.wait()
                        assert work.is_completed()
                    assert torch.equal(found, expected), (group, dtype, is_in_place, is_async)
                    assert len(set(found.tolist())) == 7 * size
                    num_compared += 1
    return num_compared


def test_gathering_by_broadcasts(tmp_path: Path, forked: Forked) -> None:
    assert forked.ranks(3, gather, cwd=tmp_path) == [16, 8, 16], "compared by each rank"


@pytest.mark.parametrize("visible", ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-a", "3"])
def test_free_memory_of_gpus_by_name(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed asks for it where stages 1 and 2 start; on a machine with NVML."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(cuda_accelerator, "pynvml", mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 if device == 0 else 7, 10))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    accelerator = cuda_accelerator.CUDA_Accelerator()
    assert (accelerator.available_memory(), accelerator.available_memory(1)) == (5, 7)
