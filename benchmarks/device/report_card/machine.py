"""The card, its software, what `zeromt doctor` says of the machine, and `make test-gpu`, a file at a time."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile

import torch

from benchmarks.common.child import ROOT, environment
from benchmarks.device import plain_loop
from benchmarks.device.work import Figures, json_output
from configs import UserError
from model.gpus import known_gpu

PACKAGES = ("torch", "triton", "deepspeed", "numpy", "webdataset", "sentencepiece", "transformers", "ctranslate2")
MATRICES = {"cuda": (4096, 8192, 12288, 16384), "cpu": (128, 256)}


def card() -> Figures:
    """The first card, their number, and versions; the name is CPU where torch sees no card."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    installed = {package.name: package.version for package in importlib.metadata.distributions()}
    versions = {name: installed.get(name, "none") for name in PACKAGES}
    return {
        "card": torch.cuda.get_device_name(0) if cards else "CPU",
        "cards": cards,
        "versions": {"python": platform.python_version(), "cuda": torch.version.cuda, **versions},
    }


def inspect(*, work: str, device: str) -> Figures:
    """The driver, the card's rate in matmuls and the data sheet's, and what doctor warns of."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        os.chdir(folder)  # doctor looks at the folder of runs
        findings = [finding for finding in json_output("doctor") if finding["grade"] != "good"]
    listed = known_gpu(card()["card"])
    row = {
        "nvidia-smi": _driver(),
        "matmul TFLOP/s": plain_loop.matrix_rate(device=device, sizes=MATRICES[device]) / 1e12,
        "listed": None if listed is None else listed.half_tflops,
    }
    return {"rows": [row, *({"doctor": one["subject"], "said": one["said"], "do": one["fix"]} for one in findings)]}


def _driver() -> str | None:
    """What nvidia-smi says of the driver, the clocks and the power limit; None without it."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = "--query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit,temperature.gpu,utilization.gpu"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout.strip()


def run_tests(*, work: str, device: str, file: str, keep: str) -> Figures:
    """Run a file's tests that are marked `gpu`.

    Args:
        work, device: not used: tests find their own.
        file: of the tests.
        keep: expression of `pytest -k`.

    Raises:
        UserError: a test failed; the message has the end of what pytest said.
    """
    if importlib.util.find_spec("pytest") is None:
        return {"skipped": "pytest is not installed"}
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-k", keep, file]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise UserError(ended.stdout[-3000:])
    return {"rows": [{"tests": f"{file} {keep}", "outcome": ended.stdout.strip().splitlines()[-1]}]}
