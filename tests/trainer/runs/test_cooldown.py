"""`--cooldown`: a run that goes on with all that another has while its rate decays, and the same twice."""

import json
import math
import shutil
from pathlib import Path

import pytest

from tests.conftest import Finished, read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer.checkpoint.format import read_whole

PARENT, STEP, LENGTH = "runs/small", 5, 4
SETTINGS = ["training.tensorboard=false", "training.memory_probe=false", "training.log_every=1"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_runs(), tmp_path / "place"))


def cool(forked: Forked, place: Path, name: str, *more: str, parent: str = f"{PARENT}@{STEP}") -> Finished:
    asked = ("--from", parent, "--cooldown", str(LENGTH), f"name={name}")
    return forked.zeromt("train", "small.yaml", *SETTINGS, *asked, *more, cwd=place)


def test_it_decays_from_where_another_stood_and_the_same_twice(place: Path, forked: Forked) -> None:
    parents = read_metrics(place / PARENT)
    for name in ("one", "two"):
        done = cool(forked, place, name)
        assert done.code == 0, done.err
        assert "resumed from" in done.out
    found = read_metrics(place / "runs" / "one")
    assert [line["step"] for line in found] == [STEP + number for number in range(1, LENGTH + 1)]
    peak = next(line["lr"] for line in parents if line["step"] == STEP)
    assert [line["lr"] for line in found] == pytest.approx(
        [peak * (1 - math.sqrt(number / LENGTH)) for number in range(1, LENGTH + 1)]
    )
    next_of_parent = next(line for line in parents if line["step"] == STEP + 1)
    assert found[0]["loss"] == next_of_parent["loss"], "with its moments and its place in the data"
    ends = [read_whole(place / "runs" / name / f"checkpoints/step-{STEP + LENGTH:08d}") for name in ("one", "two")]
    tensors = [{k: v for k, v in end.files.items() if k.endswith(".safetensors")} for end in ends]
    assert tensors[0] == tensors[1]
    assert len(tensors[0]) >= 2


def test_it_goes_on_after_a_stop_though_the_parent_is_gone(place: Path, forked: Forked) -> None:
    whole = cool(forked, place, "whole")
    assert whole.code == 0, whole.err
    early = ["training.early_stopping={metric: loss, patience: 1, min_delta: 99}", "evaluation.every_updates=2"]
    cut = cool(forked, place, "cut", *early, "checkpoint.every_updates=2")
    assert cut.code == 0, cut.err
    assert read_metrics(place / "runs" / "cut")[-1]["step"] < STEP + LENGTH, "stopped early"
    shutil.rmtree(place / PARENT)
    done = cool(forked, place, "cut", parent=PARENT)
    assert done.code == 0, done.err
    ends = [read_metrics(place / "runs" / name) for name in ("whole", "cut")]
    assert [(line["step"], line["lr"], line["loss"]) for line in ends[0]] == [
        (line["step"], line["lr"], line["loss"]) for line in ends[1]
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cooldown", "4"], "--cooldown: "),
        (["--cooldown", "4", "--from", PARENT, "--fresh"], "--cooldown: with --fresh"),
        (["--cooldown", "4", "--from", PARENT, "optimizer.lr=1"], "optimizer.lr: --cooldown sets it"),
        (["--cooldown", "4", "--from", PARENT, "schedule.kind=linear"], "schedule.kind: --cooldown sets it"),
        (["--cooldown", "4", "--from", PARENT, "name=small"], "runs/small has checkpoints already"),
        (
            ["--cooldown", "4", "--from", PARENT, "phases=[{name: a, schedule: {kind: constant}}]"],
            "phases.0.schedule: ",
        ),
    ],
)
def test_refused_before_anything_is_made(place: Path, forked: Forked, arguments: list[str], said: str) -> None:
    done = forked.zeromt("train", "small.yaml", *SETTINGS, "name=cool", *arguments, cwd=place)
    assert (done.code, said in done.err) == (2, True), done.err
    assert not (place / "runs" / "cool").exists()


def test_another_beginning_and_weights_without_moments_are_refused(place: Path, forked: Forked) -> None:
    assert cool(forked, place, "cool").code == 0
    done = cool(forked, place, "cool", parent=f"{PARENT}@10")
    assert (done.code, f"goes on with step {STEP} of" in done.err) == (2, True), done.err
    assert forked.zeromt("average", PARENT, "--last", "1", "-o", "runs/mean", cwd=place).code == 0
    done = cool(forked, place, "other", parent="runs/mean")
    assert (done.code, "has weights alone; give a checkpoint of training" in done.err) == (2, True), done.err
    state = place / PARENT / f"checkpoints/step-{STEP:08d}/state.json"
    tree = json.loads(state.read_text())
    tree["trainer"]["lr"] = 0.0
    state.write_text(json.dumps(tree))
    done = cool(forked, place, "zero")
    assert (done.code, "is at a learning rate of 0" in done.err) == (2, True), done.err
