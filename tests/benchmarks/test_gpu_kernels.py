"""Each kernel for GPUs: right, and what it costs beside the plain path."""

import pytest
import torch

from benchmarks.common.measure import print_table
from benchmarks.device.kernels import Sizes, kernels, measure


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_kernels_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Shows the table whatever it says: it is to be kept."""
    device = torch.device("cuda")
    rows = [measure(kernel, device=device, repetitions=20) for kernel in kernels(Sizes(), device)]
    with capsys.disabled():
        print_table(f"kernels in bf16 on {torch.cuda.get_device_name()}", rows)
    assert all(row["right"] == "yes" for row in rows), rows
