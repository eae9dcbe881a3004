"""What is best by: another checkpoint is kept, averaged and shown where metrics differ about it."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import read_metrics
from tests.forked import Forked
from tests.small import small_runs
from trainer.checkpoint.format import read_whole, write_manifest
from trainer.runs.layout import MANIFEST, MANIFEST_HASH, STATE

STEPS = (5, 10, 15)
SETTINGS = ("evaluation.max_pairs=2", "training.tensorboard=false")
PLANTED = {
    "bleu": {5: 90.0, 10: 80.0, 15: 70.0},
    "chrf": {5: 10.0, 10: 95.0, 15: 20.0},
    "nll": {5: 3.0, 10: 2.0, 15: 1.0},
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Path:
    """A run at step 15 whose checkpoints have scores by which BLEU, chrF and nll have another best each."""
    place = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("planted") / "place"))
    keep = ("training.max_updates=15", "checkpoint.keep_last=3")
    done = forked.zeromt("train", "small.yaml", *SETTINGS, *keep, cwd=place)
    assert done.code == 0, done.err
    run = place / "runs" / "small"

    def plant(trainer: dict[str, Any]) -> None:
        assert set(trainer["scores"]) == {"bleu", "chrf", "loss", "nll"}
        for name, scores in PLANTED.items():
            assert list(trainer["scores"][name]) == ["15"], "scores of the evaluation itself"
            trainer["scores"][name] = scores

    change_state(run / "checkpoints" / "step-00000015", plant)
    return place


def change_state(checkpoint: Path, change: Callable[[dict[str, Any]], None]) -> None:
    state = json.loads((checkpoint / STATE).read_text())
    change(state["trainer"])
    content = json.dumps(state).encode()
    (checkpoint / STATE).write_bytes(content)
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    manifest["files"][STATE] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    for name in (MANIFEST, MANIFEST_HASH):  # a checkpoint's files are written once
        (checkpoint / name).unlink()
    write_manifest(checkpoint, manifest)


@pytest.mark.parametrize(
    ("best_by", "kept"),
    [
        (None, 5),
        pytest.param("bleu", 5, marks=pytest.mark.slow),
        ("chrf", 10),
        pytest.param("nll", 15, marks=pytest.mark.slow),
    ],
)
def test_another_metric_keeps_another_checkpoint(
    best_by: str | None, kept: int, planted: Path, tmp_path: Path, forked: Forked
) -> None:
    place = Path(shutil.copytree(planted, tmp_path / "place"))
    chosen = () if best_by is None else (f"checkpoint.best_by={best_by}",)
    more = ("training.max_updates=25", "checkpoint.keep_last=2", "evaluation.every_updates=0")
    done = forked.zeromt("train", "small.yaml", *SETTINGS, *more, *chosen, cwd=place)
    assert done.code == 0, done.err
    run = place / "runs" / "small"
    assert {int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")} == {kept, 20, 25}
    assert ("3 scores are known" in done.out) == (best_by in ("chrf", "nll"))
    status = json.loads(forked.zeromt("status", "runs/small", "--json", cwd=place).out)
    *_, score, _, _, step = status["best_score"].split()
    assert (float(score), int(step)) == (PLANTED[best_by or "bleu"][kept], kept)
    done = forked.zeromt("average", "runs/small", "--best", "1", "-o", "mean", cwd=place)
    assert f"(steps {kept})" in done.out, done.err


def test_scores_that_were_left_come_back(planted: Path, tmp_path: Path, forked: Forked) -> None:
    """By chrF for a while, then by BLEU again: what either knew is there, and what the others gave meanwhile."""
    place = Path(shutil.copytree(planted, tmp_path / "place"))
    run = place / "runs" / "small"
    for updates, best_by in ((20, "chrf"), (25, "bleu")):
        settings = (f"training.max_updates={updates}", f"checkpoint.best_by={best_by}")
        assert forked.zeromt("train", "small.yaml", *SETTINGS, *settings, cwd=place).code == 0
    trainer = json.loads((run / "checkpoints" / "step-00000025" / STATE).read_text())["trainer"]
    lines = {line["step"]: line for line in read_metrics(run, "evaluation") if line["step"] > 15}
    expected = {
        name: {**PLANTED.get(name, {15: None}), **{step: line[name] for step, line in lines.items()}}
        for name in ("bleu", "chrf", "nll")
    }
    assert trainer["best_by"] == "bleu"
    assert {name: by_step(trainer["scores"][name]) for name in expected} == expected
    measured = trainer["measured"]
    assert lines[20]["series"] == measured["chrf"] != lines[25]["series"] == measured["bleu"]


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
    checkpoint = max((place / "runs" / "last" / "checkpoints").glob("step-*"))
    trainer = json.loads((checkpoint / STATE).read_text())["trainer"]
    evaluated = {line["step"]: line["bleu"] for line in read_metrics(place / "runs" / "last", "evaluation")}
    assert trainer["step"] == max(evaluated)
    assert by_step(trainer["scores"]["bleu"]) == evaluated
    assert read_whole(checkpoint).manifest["step"] == trainer["step"]


def by_step(scores: dict[str, float]) -> dict[int, float]:
    return {int(step): score for step, score in scores.items()}
