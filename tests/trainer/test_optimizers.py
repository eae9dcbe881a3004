"""An optimizer in a file outside the repository is trained with, saved, resumed and planned for."""

from pathlib import Path

import pytest

from tests.configs.plugins.cases import OPTIMIZER
from tests.conftest import Command, Finished, ask_python, install_plugin, read_metrics, zeromt
from tests.small import FILES, small_runs


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "corpus").symlink_to(FILES / "corpus")
    (tmp_path / "dataset").symlink_to(small_runs() / "dataset")
    return install_plugin(tmp_path, "optimizers", OPTIMIZER)


def train(folder: Path, variables: dict[str, str], *arguments: str) -> Finished:
    return Command(zeromt("train", *arguments), cwd=folder, variables=variables).finish()


@pytest.mark.parametrize("stage", [0, 2])
def test_one_in_a_file_outside(stage: int, plugin: dict[str, str], tmp_path: Path) -> None:
    config = str(FILES / "small.yaml")
    settings = [
        "optimizer={kind: their_momentum, lr: 0.5}", f"engine.zero_stage={stage}", "training.tensorboard=false",
        "evaluation.max_pairs=2", "training.memory_probe=false",
    ]  # fmt: skip
    for name, most in (("whole", 8), ("parts", 4), ("parts", 8)):
        more = [f"name={name}", f"training.max_updates={most}"]
        done = train(tmp_path, plugin, config, *settings, *more)
        assert done.code == 0, done.err
    whole, parts = (read_metrics(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert [line["loss"] for line in parts] == [line["loss"] for line in whole]
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.05, "it learns"
    other = train(tmp_path, plugin, config, "name=parts", "training.max_updates=9")
    assert other.code == 2
    said = "optimizer.kind: adamw, the checkpoint has their_momentum; set optimizer.kind=their_momentum, or start with "
    assert f"{said}another one by --reset optimizer" in other.err


def test_a_plan_counts_its_states(plugin: dict[str, str], tmp_path: Path) -> None:
    code = """
from configs import load_run
from zeromt.planning.costs.model_states import num_moments
answer = [num_moments(load_run("debug", settings)) for settings in (["optimizer.kind=their_momentum"], [])]
"""
    assert ask_python(code, cwd=tmp_path, variables=plugin) == [1, 2]
