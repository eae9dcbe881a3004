"""The card, its software, and what `zeromt doctor` says of the machine."""

import dataclasses
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile

import torch

from benchmarks.device import plain_loop
from benchmarks.device.work import Figures
from model.gpus import known_gpu
from zeromt.doctor.command import findings

PACKAGES = ("torch", "triton", "deepspeed", "numpy", "webdataset", "sentencepiece", "transformers", "ctranslate2")
MATRICES = {"cuda": (4096, 8192, 12288, 16384), "cpu": (128, 256)}


def card() -> Figures:
    """The first card, their number, and versions; the name is CPU where torch sees no card."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "card": torch.cuda.get_device_name(0) if cards else "CPU",
        "cards": cards,
        "versions": {"python": platform.python_version(), "cuda": torch.version.cuda, **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "none"
    return found


def inspect(*, work: str, device: str) -> Figures:
    """Doctor's findings, the driver, and the card's rate in matmuls beside the data sheet's."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        os.chdir(folder)  # doctor looks at the folder of runs
        said = [dataclasses.asdict(finding) for finding in findings(None, [], [])]
    rate = plain_loop.matrix_rate(device=device, sizes=MATRICES[device])
    listed = known_gpu(rate["name"])
    return {
        "doctor": said,
        "driver": _driver(),
        "memory": rate["memory"],
        "matmul_flops": rate["best"],
        "listed_flops": None if listed is None else listed.half_tflops * 1e12,
    }


def _driver() -> str | None:
    """What nvidia-smi says of the driver, the clocks and the power limit; None without it."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,temperature.gpu,utilization.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()
