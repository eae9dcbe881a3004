"""GPUs of a machine that has none: what nvidia-smi says is a script's, and torch is the build for CPUs."""

import os
from importlib import metadata
from pathlib import Path

import pytest

from configs import UserError
from configs.process.gpus import gpus_to_use, num_gpus
from launcher.start.ranks import describe_idle
from tests.conftest import Corpus, environment
from tests.forked import Forked

CPU_BUILD = "+cpu" in metadata.version("torch")
SMI = """#!/bin/sh
case "$1" in
-L) echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"; echo "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)" ;;
*) exit 9 ;;
esac
"""


def test_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries, driver = tmp_path / "bin", tmp_path / "gpus"
    binaries.mkdir()
    monkeypatch.setenv("PATH", str(binaries))
    assert num_gpus({}, driver) == 0
    assert num_gpus({"CUDA_VISIBLE_DEVICES": "0"}, driver) == 0
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (driver / name).mkdir(parents=True)
    assert num_gpus({}, driver) == 2
    smi = binaries / "nvidia-smi"
    smi.write_text("#!/bin/sh\nfor n in 0 1 2 3; do echo \"GPU $n: NVIDIA\"; echo '  MIG 1g'; done\n")
    smi.chmod(0o755)
    assert num_gpus({}, driver) == 4
    for visible, expected in [
        ("", 0),
        ("-1", 0),
        ("2", 1),
        ("0,1,-1,2", 2),
        ("GPU-a,GPU-b", 2),
        ("MIG-a", 1),
        ("MIG-a,MIG-b", 1),
        ("MIG-a,GPU-b", 1),
        ("GPU-a,MIG-b", 1),
        (" GPU-a , gpu-b", 2),
        ("NoDevFiles", 0),
        ("none", 0),
    ]:
        assert num_gpus({"CUDA_VISIBLE_DEVICES": visible}, driver) == expected, visible
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert num_gpus({}, driver) == 2


@pytest.mark.parametrize("visible", ["2", "0,2", " 7 ,GPU-a", "0,1,2,3"])
def test_gpus_that_are_not_there_are_refused(visible: str, two_gpus: Path) -> None:
    with pytest.raises(UserError, match=r"^CUDA_VISIBLE_DEVICES: .* has no GPU \d"):
        gpus_to_use("auto", {"CUDA_VISIBLE_DEVICES": visible})
    assert gpus_to_use("cpu", {"CUDA_VISIBLE_DEVICES": visible}) == 0


@pytest.mark.parametrize(
    ("visible", "number"), [("", 0), ("-1", 0), ("NoDevFiles", 0), ("0,-1", 1), ("GPU-9", 1), ("MIG-9", 1), ("1,0", 2)]
)
def test_gpus_that_are_named_otherwise_are_not(visible: str, number: int, two_gpus: Path) -> None:
    assert gpus_to_use("auto", {"CUDA_VISIBLE_DEVICES": visible}) == number
    if not number:
        with pytest.raises(UserError, match=r"^engine\.device: cuda, and this machine shows no GPU"):
            gpus_to_use("cuda", {"CUDA_VISIBLE_DEVICES": visible})


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that shows two of them."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.mark.skipif(not CPU_BUILD, reason="this torch can use GPUs")
@pytest.mark.parametrize(
    "start",
    ["train", "launch local", "launch node --nnodes 1 --rendezvous localhost:29400 --job-id a"],
)
def test_is_refused(start: str, two_gpus: Path, corpus_en_fr: Corpus, tmp_path: Path, forked: Forked) -> None:
    command = (*start.split(), "debug", *corpus_en_fr.overrides)
    done = forked.zeromt(*command, cwd=tmp_path, surroundings=environment())
    assert done.code == 2
    assert "engine.device: this machine has 2 GPUs, and torch" in done.err


@pytest.mark.parametrize(
    ("gpus", "processes", "micro_batches", "nodes", "told"),
    [
        (8, 8, 16, 1, ""),
        (0, 2, 4, 1, ""),
        (8, 4, 4, 1, "; 4 of its 8 GPUs idle with stream.micro_batches=4, stream.micro_batches=8 would use all"),
        (8, 7, 15, 2, "; 1 of its 8 GPUs idle with stream.micro_batches=15, stream.micro_batches=16 would use all"),
        (8, 2, 16, 1, "; 6 of its 8 GPUs idle with --nproc 2, --nproc 8 would use all"),
    ],
)
def test_idle_ones_are_named(gpus: int, processes: int, micro_batches: int, nodes: int, told: str) -> None:
    assert describe_idle(gpus, processes, micro_batches, nodes=nodes) == told
