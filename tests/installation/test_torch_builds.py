"""Which torch is taken for which machine, before anything is fetched."""

from pathlib import Path

import pytest

from configs.process.gpus import OLDEST_DRIVER
from installation import driver
from installation.driver import Gpus, gpus
from installation.errors import InstallationError
from installation.torch_builds import choose

CPUS, NEWEST, CUDA_12 = "torch==2.13.0", "torch===2.13.0", "torch==2.13.0+cu126"


def card(version: str | None, *capabilities: float) -> Gpus:
    return Gpus(driver=version, capabilities=capabilities)


@pytest.mark.parametrize(
    ("cuda", "found", "taken"),
    [
        ("", None, CPUS),
        ("0", card("580.65.06", 9.0), CPUS),
        ("", card("580.65.06", 9.0), NEWEST),
        ("", card(None), NEWEST),
        ("1", None, NEWEST),
        ("1", card("595.10", 12.0), NEWEST),
        ("", card("535.104.05", 8.0), CUDA_12),
        ("", card("570.86.15", 9.0), CUDA_12),
        ("", card("580.65.06", 7.0), CUDA_12),  # V100
        ("12", card("550.54.14", 8.0), CUDA_12),
        ("12", card("595.10", 9.0), CUDA_12),
        ("12", None, CUDA_12),
    ],
)
def test_which_is_taken(cuda: str, found: Gpus | None, taken: str) -> None:
    build = choose(cuda, found, "2.13.0", "https://an.index/whl")
    assert build.attempts[-1][-1] == taken
    if taken == CUDA_12:
        assert build.attempts == (("--extra-index-url", "https://an.index/whl/cu126", taken),)
    if taken == CPUS:
        assert build.attempts[1][-2:] == ("https://an.index/whl/cpu", "torch==2.13.0+cpu")


@pytest.mark.parametrize(
    ("cuda", "found", "said"),
    [
        ("1", card("535.104.05", 8.0), r"driver 535\.104\.05 serves CUDA 12 .*580 or newer.*: make install CUDA=12$"),
        ("1", card("580.65.06", 7.0), r"compute capability 7\.0 .*: make install CUDA=12$"),
        ("", card("470.82.01"), r"driver 470\.82\.01 is too old for any build .*525 or newer\): update it"),
        ("12", card("470.82.01"), r"update it; CUDA=0 takes the build for CPUs$"),
        ("12", card("580.65.06", 12.0), r"compute capability 12\.0 .* ends with 9\.0"),
        ("", card("570.86.15", 10.0), r"it needs CUDA 13 and a driver of 580"),
    ],
)
def test_what_cannot_run_is_refused(cuda: str, found: Gpus, said: str) -> None:
    with pytest.raises(InstallationError, match=said):
        choose(cuda, found, "2.13.0")


@pytest.mark.parametrize(
    "kernel", ["x86_64 Kernel Module  535.104.05  Sat", "Open Kernel Module for x86_64  535.104.05  R"]
)
def test_what_a_machine_shows(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    proc = tmp_path / "nvidia"
    assert gpus(proc) is None
    (proc / "gpus/0000:01:00.0").mkdir(parents=True)
    assert gpus(proc) == card(None)
    (proc / "version").write_text(f"NVRM version: NVIDIA UNIX {kernel} Aug 19 01:15:15 UTC 2023\nGCC version: 12.3.0\n")
    assert gpus(proc) == card("535.104.05")
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\ncase $1 in *driver_version) echo 580.1; echo 580.1;; *) echo 7.0; echo '[N/A]';; esac\n")
    smi.chmod(0o755)
    assert gpus(proc) == card("580.1", 7.0)
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert gpus(proc) == card("535.104.05")


def test_the_installed_package_knows_the_same_drivers() -> None:
    assert driver.OLDEST_DRIVER == OLDEST_DRIVER
