"""`zeromt average`: the mean of the right checkpoints, and a run that can be used and trained on."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from configs import UserError
from data_pipeline.tokenizer import Tokenizer
from tests.forked import Forked
from tests.trainer.conftest import TrainedRun
from tests.zeromt.made import make_run, make_tokenizer
from trainer.checkpoint.format import StoredTensors, read_checkpoint
from trainer.runs.layout import checkpoint_folder
from zeromt.averaging.average import average, check_alike, choose
from zeromt.cli.main import main


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With checkpoints of steps 1 to 4."""
    root, joint = tmp_path_factory.mktemp("made"), make_tokenizer(joint=True)
    for step in range(1, 5):
        make_run(root / f"run{step}", joint, seed=step, step=step)
    for step in range(1, 4):
        name = f"checkpoints/step-0000000{step}"
        (root / f"run{step}" / name).rename(root / "run4" / name)
    return root / "run4"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made, tmp_path / "run4"))


def damage(run: Path, step: int) -> None:
    weights = checkpoint_folder(run, step) / "model-00000-of-00001.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return dict(read_checkpoint(folder).stored("model"))


def test_the_mean_of_the_newest(run: Path, tmp_path: Path) -> None:
    assert main(["average", str(run), "--last", "3", "-o", str(tmp_path / "out")]) == 0
    averaged = weights_of(tmp_path / "out" / "checkpoints" / "step-00000004")
    several = [weights_of(run / "checkpoints" / f"step-0000000{step}") for step in (2, 3, 4)]
    assert averaged.keys() == several[0].keys()
    for name, tensor in averaged.items():
        assert tensor.equal(torch.stack([w[name].double() for w in several]).mean(0).float()), name
    assert read_checkpoint(tmp_path / "out" / "checkpoints" / "step-00000004").manifest["weights_only"] == {
        "command": "average",
        "checkpoints": [str(run / "checkpoints" / f"step-0000000{step}") for step in (4, 3, 2)],
        "weights": ["model"] * 3,
    }


def test_sums_are_of_double_precision(tmp_path: Path) -> None:
    values = [2.0**24, 1.0, 1.0, -(2.0**24)]
    for n, value in enumerate(values):
        save_file({"w": torch.tensor([value])}, tmp_path / f"{n}.safetensors")
    stored = [StoredTensors([tmp_path / f"{n}.safetensors"]) for n in range(4)]
    assert [(name, t.tolist()) for name, t in average(stored)] == [("w", [0.5])]


def test_a_broken_checkpoint_does_not_count(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(run, 3)
    assert [c.manifest["step"] for c in choose(run, last=3, best=None)] == [4, 2, 1]
    assert "SHA-256" in capsys.readouterr().err
    assert main(["average", str(run), "--last", "4", "-o", str(tmp_path / "out")]) == 2
    assert "--last: 4, and 3 checkpoints" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_checkpoints_of_two_models_are_refused(joint: Tokenizer, run: Path, tmp_path: Path) -> None:
    name = "checkpoints/step-00000009"
    make_run(tmp_path / "other", joint, step=9, d_ff=40, activation="gelu")
    (tmp_path / "other" / name).rename(run / name)
    said = (
        "model.feed_forward.kind: 'relu', step-00000009 has 'gelu'; model.feed_forward.d_ff: 24, step-00000009 has 40"
    )
    with pytest.raises(UserError, match=re.escape(said)):
        check_alike(choose(run, last=2, best=None))


def test_an_average_is_trained_on(trained: TrainedRun, forked: Forked, tmp_path: Path) -> None:
    """At bf16, where the fp32 masters must be those of the average all the same."""
    out = tmp_path / "mean"
    assert main(["average", str(trained.folder), "--last", "2", "-o", str(out)]) == 0
    config = str(out / "config.yaml")
    settings = [
        "training.max_updates=1",
        "schedule.warmup_updates=0",
        "optimizer.lr=1e-30",
        "engine.precision=bf16",
        "optimizer.weight_decay=0",
    ]
    refused = forked.zeromt("train", config, *settings, cwd=tmp_path)  # in a process: it sets signal handlers
    assert refused.code == 2
    assert "--reset: nothing, and" in refused.err
    before = weights_of(out / "checkpoints" / "step-00000300")
    done = forked.trainer(1, config, "--reset", "data,optimizer", *settings, cwd=tmp_path)
    assert done.code == 0, done.err
    after = weights_of(out / "checkpoints" / "step-00000301")
    assert all(after[name].equal(tensor) for name, tensor in before.items()), "to the last bit"
