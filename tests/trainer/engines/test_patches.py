"""What is changed in DeepSpeed; tests/private_names.py lists what the changes lean on."""

from unittest import mock

import pytest
import torch
from deepspeed.accelerator import cuda_accelerator


@pytest.mark.parametrize("visible", ["GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "MIG-a", "3"])
def test_free_memory_of_gpus_by_name(visible: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed asks for it where stages 1 and 2 start; on a machine with NVML."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(cuda_accelerator, "pynvml", mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 if device == 0 else 7, 10))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    accelerator = cuda_accelerator.CUDA_Accelerator()
    assert (accelerator.available_memory(), accelerator.available_memory(1)) == (5, 7)
