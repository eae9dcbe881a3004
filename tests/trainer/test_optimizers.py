"""An optimizer in a file outside the repository is trained with, saved, resumed and planned for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment, install_plugin, read_metrics
from tests.kept import BBB3253

THEIRS = '''
from configs.components import Optimizer, component
from configs.fields import Probability


@component("optimizer", "momentum")
class Momentum(Optimizer):
    """Stochastic gradient descent with momentum (Polyak, 1964)."""

    states = ("momentum_buffer",)
    momentum: Probability = 0.9

    def build(self, groups):
        import torch

        return torch.optim.SGD(list(groups), lr=0.0, momentum=self.momentum)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    install_plugin(tmp_path, "optimizers", THEIRS)
    (tmp_path / "corpus").symlink_to(BBB3253 / "corpus")
    (tmp_path / "dataset").symlink_to(BBB3253 / "dataset")
    variables = environment()
    return {**variables, "PYTHONPATH": f"{variables['PYTHONPATH']}{os.pathsep}{tmp_path}"}


def zeromt(folder: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *arguments]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("stage", [0, 2])
def test_one_in_a_file_outside(stage: int, plugin: dict[str, str], tmp_path: Path) -> None:
    config = str(BBB3253 / "small.yaml")
    settings = [
        "optimizer={kind: momentum, lr: 0.5}", f"engine.zero_stage={stage}", "training.tensorboard=false",
        "evaluation.max_pairs=2", "training.memory_probe=false",
    ]  # fmt: skip
    for name, most in (("whole", 8), ("parts", 4), ("parts", 8)):
        more = [f"name={name}", f"training.max_updates={most}"]
        done = zeromt(tmp_path, plugin, "train", config, *settings, *more)
        assert done.returncode == 0, done.stderr
    whole, parts = (read_metrics(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert [line["loss"] for line in parts] == [line["loss"] for line in whole]
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.05, "it learns"
    other = zeromt(tmp_path, plugin, "train", config, "name=parts", "training.max_updates=9")
    assert other.returncode == 2
    assert "optimizer.kind: adamw, the checkpoint has momentum; allowed is that, or --reset optimizer" in other.stderr


def test_a_plan_counts_its_states(plugin: dict[str, str], tmp_path: Path) -> None:
    code = """
from configs import load_run
from launcher.planning.costs.model_states import num_moments
print(num_moments(load_run("debug", ["optimizer.kind=momentum"])), num_moments(load_run("debug")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=plugin, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "2"]
