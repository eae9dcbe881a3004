"""Which ranks are bound to the cores beside their GPUs."""

import shutil
from pathlib import Path

import pytest

from configs.schema import EngineSection
from launcher.machine.cores import choose_binding

TWO = {"node0": "0-3,8", "node1": "4-7"}
CORES = frozenset(range(16))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with two nodes of memory with cores, and one without, and numactl."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for name, numbers in {**TWO, "node2": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "cpulist").write_text(numbers + "\n")
    (tmp_path / "possible").write_text("0-2")
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "gpus", "allowed", "mode"),
    [
        ("auto", 8, CORES, "node"),
        ("core-complex", 8, CORES, "core-complex"),
        ("off", 8, CORES, None),
        ("auto", 0, CORES, None),
        ("node", 0, CORES, None),
        ("auto", 8, frozenset({0, 1}), None),  # a node of memory has no core that this job may use
    ],
)
def test_binding(machine: Path, asked: str, gpus: int, allowed: frozenset[int], mode: str | None) -> None:
    assert choose_binding(asked, gpus=gpus, nodes=machine, allowed=allowed) == mode


def test_auto_where_torchrun_cannot(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(machine / "node1")
    assert choose_binding("auto", gpus=8, nodes=machine, allowed=CORES) is None
    (machine / "node1").mkdir()
    (machine / "node1" / "cpulist").write_text("4-7\n")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert choose_binding("auto", gpus=8, nodes=machine, allowed=CORES) is None


def test_modes_are_those_of_torch() -> None:
    from torch.numa.binding import AffinityMode

    kinds = EngineSection.__annotations__["numa_binding"].__args__
    assert set(kinds) - {"auto", "off"} == {mode.value for mode in AffinityMode}
