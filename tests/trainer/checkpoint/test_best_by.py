"""What is best by: another checkpoint is kept, averaged and shown where metrics differ about it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import small_runs
from tests.trainer.checkpoint.small_engine import put
from trainer.checkpoint.format import read_whole
from trainer.runs.layout import STATE

SETTINGS = ("evaluation.max_pairs=2", "training.tensorboard=false")
PLANTED = {
    "bleu": {5: 90.0, 10: 80.0, 15: 70.0},
    "chrf": {5: 10.0, 10: 95.0, 15: 20.0},
    "nll": {5: 3.0, 10: 2.0, 15: 1.0},
}


def test_another_metric_keeps_another_checkpoint(tmp_path: Path, forked: Forked) -> None:
    """A run at step 15 by whose scores BLEU, chrF and nll have another best each; then by BLEU again."""
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    run = place / "runs" / "small"

    def train(*settings: str) -> str:
        done = forked.zeromt("train", "small.yaml", *SETTINGS, *settings, cwd=place)
        assert done.code == 0, done.err
        return done.out

    train("training.max_updates=15", "checkpoint.keep_last=3")
    checkpoint = read_whole(run / "checkpoints" / "step-00000015")
    state = checkpoint.state()
    assert list(state["trainer"]["scores"]["chrf"]) == ["15"], "the score of the evaluation itself"
    state["trainer"]["scores"] |= PLANTED
    put(checkpoint.folder, STATE, json.dumps(state).encode())

    more = ("checkpoint.keep_last=2", "evaluation.every_updates=0")
    assert "3 scores are known" in train("training.max_updates=25", "checkpoint.best_by=chrf", *more)
    assert {int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")} == {10, 20, 25}
    *_, score, _, _, step = json.loads(forked.zeromt("status", str(run), "--json", cwd=place).out)["best_score"].split()
    assert (float(score), int(step)) == (95.0, 10)
    averaged = forked.zeromt("average", "runs/small", "--best", "1", "-o", "mean", cwd=place)
    assert "(steps 10)" in averaged.out, averaged.err

    train("training.max_updates=30", "checkpoint.best_by=bleu")
    trainer = read_whole(run / "checkpoints" / "step-00000030").state()["trainer"]
    for name, planted in PLANTED.items():
        made = {line["step"]: line[name] for line in read_metrics(run, "evaluation") if line["step"] > 15}
        assert {int(step): score for step, score in trainer["scores"][name].items()} == planted | made, name
    assert trainer["best_by"] == "bleu"


@pytest.mark.parametrize(
    "settings",
    [
        ("training.max_updates=4", "checkpoint.every_updates=2", "evaluation.every_updates=3"),
        ("training.max_epochs=1", "checkpoint.every_updates=1", "evaluation.every_updates=1000"),
    ],
    ids=["updates", "epochs"],
)
def test_the_last_checkpoint_has_the_last_score(settings: tuple[str, ...], tmp_path: Path, forked: Forked) -> None:
    """Also where a save is due at that step, or has been made before it is known to be the last."""
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    more = ("name=last", "training.max_updates=1000", "checkpoint.keep_best=0")
    done = forked.zeromt("train", "small.yaml", *SETTINGS, *more, *settings, cwd=place)
    assert done.code == 0, done.err
    run = place / "runs" / "last"
    trainer = read_whole(max((run / "checkpoints").glob("step-*"))).state()["trainer"]
    evaluated = {line["step"]: line["bleu"] for line in read_metrics(run, "evaluation")}
    assert trainer["step"] == max(evaluated)
    assert {int(step): score for step, score in trainer["scores"]["bleu"].items()} == evaluated
