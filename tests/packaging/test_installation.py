"""`make install` on machines that are not this one: with GPUs and no CUDA toolkit; and which tests use GPUs."""

import os
import subprocess
import sys

from installation.project import DEEPSPEED_VARIABLES
from tests.waiting import PATIENCE

A_GPU_AND_NO_TOOLKIT = """if True:
    import torch
    import torch.utils.cpp_extension
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_properties = lambda *_: type("Card", (), {"major": 9, "minor": 0})()
    torch.version.cuda = "13.0"
    torch.utils.cpp_extension.CUDA_HOME = None
    from deepspeed.ops.op_builder.all_ops import ALL_OPS
    from deepspeed.ops import op_builder
    for name, builder in ALL_OPS.items():  # what DeepSpeed's setup.py asks of each
        builder.is_compatible()
"""


def test_deepspeed_asks_for_no_cuda_toolkit() -> None:
    """Its setup asks its builders for CUDA ops whether they can be built, and six raise where there is no toolkit."""
    found = {}
    without = {**DEEPSPEED_VARIABLES, "DS_ACCELERATOR": "cuda"}
    for name, variables in {"make install": DEEPSPEED_VARIABLES, "without": without}.items():
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DS_")} | variables
        done = subprocess.run(
            [sys.executable, "-c", A_GPU_AND_NO_TOOLKIT],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        found[name] = done.returncode, done.stderr
    assert found["make install"][0] == 0, found["make install"][1][-2000:]
    assert "MissingCUDAException" in found["without"][1]
