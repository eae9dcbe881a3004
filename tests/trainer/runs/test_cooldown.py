"""`--cooldown`: a run that goes on with all that another has while its rate decays."""

import json
import math
import shutil
from pathlib import Path

import pytest

from tests.conftest import Finished, read_metrics
from tests.forked import Forked
from zeromt.cli.main import main

PARENT, STEP, LENGTH = "runs/small", 5, 4
SETTINGS = ["training.tensorboard=false", "training.memory_probe=false", "training.log_every=1"]


def cool(forked: Forked, place: Path, name: str, *more: str, parent: str = f"{PARENT}@{STEP}") -> Finished:
    asked = ("--from", parent, "--cooldown", str(LENGTH), f"name={name}")
    return forked.zeromt("train", "small.yaml", *SETTINGS, *asked, *more, cwd=place)


def test_it_decays_from_where_another_stood(place: Path, forked: Forked) -> None:
    """Also after a stop, when the parent is gone."""
    parents = read_metrics(place / PARENT)
    done = cool(forked, place, "whole")
    assert done.code == 0, done.err
    assert "resumed from" in done.out
    found = read_metrics(place / "runs" / "whole")
    assert [line["step"] for line in found] == [STEP + number for number in range(1, LENGTH + 1)]
    peak = next(line["lr"] for line in parents if line["step"] == STEP)
    assert [line["lr"] for line in found] == pytest.approx(
        [peak * (1 - math.sqrt(number / LENGTH)) for number in range(1, LENGTH + 1)]
    )
    next_of_parent = next(line for line in parents if line["step"] == STEP + 1)
    assert found[0]["loss"] == next_of_parent["loss"], "with its moments and its place in the data"

    early = ["training.early_stopping={metric: loss, patience: 1, min_delta: 99}", "evaluation.every_updates=2"]
    cut = cool(forked, place, "cut", *early, "checkpoint.every_updates=2")
    assert cut.code == 0, cut.err
    assert read_metrics(place / "runs" / "cut")[-1]["step"] < STEP + LENGTH, "stopped early"
    shutil.rmtree(place / PARENT)
    done = cool(forked, place, "cut", parent=PARENT)
    assert done.code == 0, done.err
    ends = [
        [(line["step"], line["lr"], line["loss"]) for line in lines]
        for lines in (found, read_metrics(place / "runs" / "cut"))
    ]
    assert ends[0] == ends[1]


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
def test_refused_before_anything_is_made(
    place: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert main(["train", "small.yaml", "name=cool", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not (place / "runs" / "cool").exists()


def test_another_beginning_and_weights_without_moments_are_refused(
    place: Path, forked: Forked, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cool(forked, place, "cool").code == 0
    monkeypatch.chdir(place)
    assert main(["average", PARENT, "--last", "1", "-o", "runs/mean"]) == 0
    state = place / PARENT / f"checkpoints/step-{STEP:08d}/state.json"
    tree = json.loads(state.read_text())
    tree["trainer"]["lr"] = 0.0
    state.write_text(json.dumps(tree))
    for name, parent, said in (
        ("cool", f"{PARENT}@10", f"goes on with step {STEP} of"),
        ("other", "runs/mean", "has weights alone; give a checkpoint of training"),
        ("zero", f"{PARENT}@{STEP}", "is at a learning rate of 0"),
    ):
        asked = ["--from", parent, "--cooldown", str(LENGTH), f"name={name}"]
        done = forked.zeromt("train", "small.yaml", *SETTINGS, *asked, cwd=place)  # refused when it has begun
        assert done.code == 2
        assert said in done.err
