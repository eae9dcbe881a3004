"""`make install` on machines that are not this one: with GPUs and no CUDA toolkit; and which tests use GPUs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO, asks_for_gpus

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


def recipe(**variables: str) -> str:
    """What `make install` would run in an empty folder."""
    settings = [f"{name}={value}" for name, value in variables.items()]
    command = ["make", "--no-print-directory", "-n", "-B", "install", *settings]
    return subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True, timeout=60).stdout


def test_deepspeed_asks_for_no_cuda_toolkit() -> None:
    """Its setup asks its builders for CUDA ops whether they can be built, and six raise where there is no toolkit."""
    [line] = [line for line in recipe().splitlines() if "--no-build-isolation deepspeed" in line]
    given = dict(re.findall(r"\b(DS_[A-Z_]+)=(\S+)", line))
    found = {}
    for name, variables in {"make install": given, "without": {**given, "DS_ACCELERATOR": "cuda"}}.items():
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DS_")} | variables
        done = subprocess.run(
            [sys.executable, "-c", A_GPU_AND_NO_TOOLKIT], env=environment, capture_output=True, text=True, timeout=120
        )
        found[name] = done.returncode, done.stderr
    assert found["make install"][0] == 0, found["make install"][1][-2000:]
    assert "MissingCUDAException" in found["without"][1]


@pytest.mark.parametrize(
    ("shows_gpus", "switch", "takes_cuda"),
    [(True, "", True), (False, "", False), (False, "1", True), (True, "0", False)],
)
def test_which_torch_is_taken(shows_gpus: bool, switch: str, takes_cuda: bool, tmp_path: Path) -> None:
    """The recipe's own lines, with a pip that says what it is asked for."""
    script = recipe(CUDA=switch, BIN=str(tmp_path), PIP="pip")
    lines = script[script.index('if test "') : script.index("fi\n") + 2]
    for name, text in {
        "pip": '#!/bin/sh\necho "$@"\n',
        "nvidia-smi": '#!/bin/sh\necho "GPU 0: NVIDIA H100"\n' if shows_gpus else "#!/bin/sh\nexit 9\n",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    paths = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", lines], env={"PATH": paths}, capture_output=True, text=True, timeout=60)
    assert done.stdout.split()[-1] == ("torch===2.13.0" if takes_cuda else "torch==2.13.0+cpu")


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ("not slow and not gpu and not slurm", False),
        ("", False),
        ("slow", False),
        ("gpu", True),
        ("gpu and slow", True),
    ],
)
def test_only_tests_marked_gpu_see_gpus(marks: str, expected: bool) -> None:
    assert asks_for_gpus(marks) == expected


def test_this_one_sees_none() -> None:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
