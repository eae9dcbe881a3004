"""An optimizer in a file outside the repository is trained with, saved and resumed."""

from pathlib import Path

import pytest

from configs import ConfigError, load_run
from tests.configs.plugins.cases import OPTIMIZER
from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import FILES, small_runs


def test_one_in_a_file_outside(forked: Forked, tmp_path: Path) -> None:
    (tmp_path / "corpus").symlink_to(FILES / "corpus")
    (tmp_path / "dataset").symlink_to(small_runs() / "dataset")
    (tmp_path / "theirs.py").write_text(OPTIMIZER)
    begin = ["train", str(FILES / "small.yaml"), "--plugins", "theirs.py"]
    settings = [
        "optimizer={kind: their_momentum, lr: 0.5}", "engine.zero_stage=2", "training.tensorboard=false",
        "evaluation.max_pairs=2",
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
    said = "optimizer.kind: adamw, the checkpoint has their_momentum; set optimizer.kind=their_momentum, or begin with "
    assert f"{said}new moments by --reset optimizer" in other.err


@pytest.mark.parametrize(
    ("kind", "stage", "why"),
    [
        ("adafactor", 2, "by rows and columns of matrices, which engine.zero_stage=2 cuts into pieces; set engine.z"),
        ("muon", 3, "by whole matrices, which ranks do not gather in host memory; set engine.offload_optimizer=false"),
    ],
)
def test_where_it_is_not_sound_it_is_refused_by_name(kind: str, stage: int, why: str) -> None:
    settings = [f"optimizer.kind={kind}", f"engine.zero_stage={stage}", "engine.offload_optimizer=true"]
    with pytest.raises(ConfigError, match=rf"optimizer\.kind: {kind} works {why}.*element by element, such as adamw$"):
        load_run("debug", settings)
