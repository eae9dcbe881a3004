"""Ranks are bound to cores beside their GPUs where that can be done, and what stands in the way is said."""

import shutil
from pathlib import Path

import pytest
from torch.distributed.run import parse_args

from configs import EngineSection
from launcher.agents.job import Job, torchrun_command
from launcher.machine import cores
from launcher.machine.cores import choose_binding

TWO = {"node0": "0-3,8-11", "node1": "4-7,12-15"}
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


@pytest.mark.parametrize(("asked", "mode"), [("auto", "node"), ("node", "node"), ("core-complex", "core-complex")])
def test_bound(machine: Path, asked: str, mode: str) -> None:
    found = choose_binding(asked, gpus=8, nodes=machine, allowed=CORES)
    assert found.mode == mode
    assert found.said == f"; bound to the cores beside their GPUs (engine.numa_binding={mode})"
    job = Job(
        config="debug", overrides=(), num_processes=8, folder=machine, shutdown_seconds=600, numa_binding=found.mode
    )
    arguments = parse_args(torchrun_command(job, "id")[3:])  # type: ignore[no-untyped-call]
    assert arguments.numa_binding == mode, "torchrun takes it"


def test_off_and_auto_on_a_cpu_say_nothing(machine: Path) -> None:
    for asked, gpus in (("off", 8), ("auto", 0)):
        found = choose_binding(asked, gpus=gpus, nodes=machine, allowed=CORES)
        assert (found.mode, found.said) == (None, "")
    job = Job(config="debug", overrides=(), num_processes=2, folder=machine, shutdown_seconds=600)
    assert not [argument for argument in torchrun_command(job, "id") if "numa" in argument]


def test_one_node_of_memory(tmp_path: Path) -> None:
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "cpulist").write_text("0-15\n")
    assert choose_binding("auto", gpus=8, nodes=tmp_path, allowed=CORES).said == ""
    for nodes in (tmp_path, tmp_path / "none"):
        found = choose_binding("socket", gpus=8, nodes=nodes, allowed=CORES)
        assert found.mode is None
        assert found.said == "; not bound to cores (engine.numa_binding=socket): this machine has one node of memory"


@pytest.mark.parametrize("asked", ["auto", "exclusive"])
def test_what_stands_in_the_way_is_said(machine: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """torchrun would end with a traceback."""
    few = choose_binding(asked, gpus=8, nodes=machine, allowed=frozenset({0, 1}))
    assert few.mode is None
    assert few.said.endswith(f"={asked}): a node of memory has no core that this job may use")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    missing = choose_binding(asked, gpus=8, nodes=machine, allowed=CORES)
    assert missing.mode is None
    assert "numactl is missing" in missing.said


def test_asked_for_on_a_cpu(machine: Path) -> None:
    found = choose_binding("node", gpus=0, nodes=machine, allowed=CORES)
    assert found.mode is None
    assert found.said.endswith("ranks are bound beside their GPUs, and compute on the CPU")


def test_modes_are_those_of_torch() -> None:
    from torch.numa.binding import AffinityMode

    kinds = EngineSection.__annotations__["numa_binding"].__args__
    assert set(kinds) - {cores.AUTO, cores.OFF} == {mode.value for mode in AffinityMode}
