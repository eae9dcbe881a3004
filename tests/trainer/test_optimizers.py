"""An optimizer in a file outside the repository is trained with, saved, resumed and planned for."""

from pathlib import Path

import pytest

from tests.configs.plugins.cases import OPTIMIZER
from tests.conftest import ask_python, install_plugin, read_metrics
from tests.forked import Forked
from tests.small import FILES, small_runs


@pytest.mark.parametrize("stage", [0, 2])
def test_one_in_a_file_outside(stage: int, forked: Forked, tmp_path: Path) -> None:
    (tmp_path / "corpus").symlink_to(FILES / "corpus")
    (tmp_path / "dataset").symlink_to(small_runs() / "dataset")
    (tmp_path / "theirs.py").write_text(OPTIMIZER)
    begin = ["train", str(FILES / "small.yaml"), "--plugins", "theirs.py"]
    settings = [
        "optimizer={kind: their_momentum, lr: 0.5}", f"engine.zero_stage={stage}", "training.tensorboard=false",
        "evaluation.max_pairs=2", "training.memory_probe=false",
    ]  # fmt: skip
    for name, most in (("whole", 8), ("parts", 4), ("parts", 8)):
        more = [f"name={name}", f"training.max_updates={most}"]
        done = forked.zeromt(*begin, *settings, *more, cwd=tmp_path)
        assert done.code == 0, done.err
    whole, parts = (read_metrics(tmp_path / "runs" / name) for name in ("whole", "parts"))
    assert [line["loss"] for line in parts] == [line["loss"] for line in whole]
    assert whole[-1]["loss"] < whole[0]["loss"] - 0.05, "it learns"
    other = forked.zeromt(*begin, "name=parts", "training.max_updates=9", cwd=tmp_path)
    assert other.code == 2
    said = "optimizer.kind: adamw, the checkpoint has their_momentum; set optimizer.kind=their_momentum, or start with "
    assert f"{said}another one by --reset optimizer" in other.err


def test_a_plan_counts_its_states(tmp_path: Path) -> None:
    plugin = install_plugin(tmp_path, "optimizers", OPTIMIZER)
    code = """
from configs import load_run
from zeromt.planning.costs.model_states import num_moments
answer = [num_moments(load_run("debug", settings)) for settings in (["optimizer.kind=their_momentum"], [])]
"""
    assert ask_python(code, cwd=tmp_path, variables=plugin) == [1, 2]
