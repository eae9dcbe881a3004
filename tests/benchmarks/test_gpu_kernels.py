"""Each kernel for GPUs: right, and what it costs beside the plain path. On a CPU its plain twin, small."""

import pytest
import torch

from benchmarks.common.measure import print_table
from benchmarks.device.kernels import SMALL, Sizes, kernels, main, measure, table_row


def test_the_program_on_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--small", "--repetitions", "1"]) == 0
    printed = capsys.readouterr().out
    for kernel in kernels(SMALL, torch.device("cpu")):
        assert kernel.name in printed


def test_a_wrong_kernel_is_told() -> None:
    kernel = kernels(SMALL, torch.device("cpu"))[0]
    object.__setattr__(kernel, "ours", lambda: [1.05 * x for x in kernel.twin()])
    row = measure(kernel, device=torch.device("cpu"), repetitions=1)
    assert not row["right"]
    assert "NO" in table_row(row)["right"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_kernels_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Shows the table whatever it says: it is to be kept."""
    device = torch.device("cuda")
    found = [measure(kernel, device=device, repetitions=20) for kernel in kernels(Sizes(), device)]
    with capsys.disabled():
        print_table(f"kernels in bf16 on {torch.cuda.get_device_name()}", [table_row(row) for row in found])
    assert all(row["right"] for row in found), found
