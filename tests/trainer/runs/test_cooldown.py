"""`--cooldown`: a run that goes on with all that another has while its rate decays."""

import json
import math
import shutil
from pathlib import Path

import pytest
import yaml

from configs import load_run
from configs.components import make
from tests.conftest import Refused, read_metrics
from tests.forked import Forked
from trainer.checkpoint.format import read_whole
from trainer.runs.parents import with_cooldown

PARENT, STEP, LENGTH = "runs/small", 5, 4
SETTINGS = ["training.tensorboard=false", "training.log_every=1", "name=cool"]


def test_it_decays_from_where_another_stood(place: Path, forked: Forked) -> None:
    """Also after a stop, when the parent is gone."""
    asked = ["train", "small.yaml", *SETTINGS, "--cooldown", str(LENGTH), "--from"]
    cool, parents = place / "runs" / "cool", read_metrics(place / PARENT)
    early = ["training.early_stopping={metric: loss, patience: 1, min_delta: 99}", "evaluation.every_updates=2"]
    done = forked.zeromt(*asked, f"{PARENT}@{STEP}", *early, "checkpoint.every_updates=2", cwd=place)
    assert done.code == 0, done.err
    assert read_metrics(cool)[-1]["step"] < STEP + LENGTH, "stopped early"
    saved = max((cool / "checkpoints").glob("step-*"))
    assert read_whole(saved).manifest["parent"]["weights"] == "all"
    shutil.rmtree(place / PARENT)
    done = forked.zeromt(*asked, PARENT, cwd=place)
    assert done.code == 0, done.err
    lines = read_metrics(cool)
    assert [line["step"] for line in lines] == [STEP + number for number in range(1, LENGTH + 1)]
    peak = next(line["lr"] for line in parents if line["step"] == STEP)
    rates = [peak * (1 - math.sqrt(number / LENGTH)) for number in range(1, LENGTH + 1)]
    assert [line["lr"] for line in lines] == pytest.approx(rates)
    next_of_parent = next(line for line in parents if line["step"] == STEP + 1)
    assert lines[0]["loss"] == next_of_parent["loss"], "with its moments and its place in the data"
    done = forked.zeromt("train", "small.yaml", *SETTINGS, "--from", PARENT, cwd=place)
    assert (done.code, "began from all of small, step 5" in done.err) == (2, True), "as it began, or without --from"


@pytest.mark.parametrize(
    "own",
    [
        {"kind": "wsd", "warmup_updates": 2, "decay_updates": 3, "min_lr_ratio": 0.5, "decay": "linear"},
        {"kind": "wsd", "ends_with": "minutes"},
        {"kind": "cosine", "warmup_updates": 3, "min_lr_ratio": 0.5},
    ],
)
def test_nothing_of_the_configurations_own_schedule_remains(place: Path, own: dict[str, object]) -> None:
    tree = yaml.safe_load((place / "small.yaml").read_text())
    tree |= {"schedule": own, "training": {"max_target_tokens": 999, "max_minutes": 9}}
    file = place / "own.yaml"
    file.write_text(yaml.safe_dump(tree))
    asked = {"config": str(file), "overrides": [f"output={place}"], "plugins": [], "fresh": False}
    parent = str(place / f"{PARENT}@{STEP}")
    arguments = with_cooldown({**asked, "cooldown": LENGTH, "parent": parent})
    config = load_run(str(file), arguments["overrides"])
    assert config.schedule == make("schedule", "wsd", warmup_updates=0, decay_updates=LENGTH)
    assert (arguments["parent"], config.training.max_updates) == (f"{parent}:all", STEP + LENGTH)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cooldown", "4"], "--cooldown: of which run? "),
        (["--cooldown", "4", "--from", PARENT, "optimizer.lr=1"], "optimizer.lr: --cooldown sets it"),
        (["--cooldown", "4", "--from", PARENT, "name=small"], "runs/small has checkpoints and began from no other"),
        (["--cooldown", "4", "--from", "runs/mean"], "has no learning rate to continue from, as it has weights alone"),
        (["--cooldown", "4", "--from", PARENT, "phases=[{name: a, schedule: {kind: constant}}]"], "phases.0.schedule"),
    ],
)
def test_refused_before_anything_is_made(place: Path, refused: Refused, arguments: list[str], said: str) -> None:
    mean = shutil.copytree(place / PARENT, place / "runs" / "mean")
    for state in mean.glob("checkpoints/*/state.json"):
        state.write_text(json.dumps({"trainer": {"step": 5, "start_step": 0, "lr": 0.0}}))
    assert said in refused("train", "small.yaml", "name=cool", *arguments, cwd=place)
    assert not (place / "runs" / "cool").exists()
