"""What a run that is started again takes up, what it refuses, what it says, and where its limits are counted from."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs import load_run
from launcher.monitoring.look import read_overview
from launcher.monitoring.show import lines_of
from tests.conftest import Finished, contents, read_metrics
from tests.forked import Forked
from trainer.checkpoint.resume import changed_fields

Again = Callable[..., Finished]


@pytest.fixture
def train(place: Path, forked: Forked) -> Again:
    def run(*arguments: str, config: str = "small.yaml") -> Finished:
        more = ["training.tensorboard=false", "evaluation.max_pairs=2"]
        return forked.zeromt("train", config, *arguments, *more, cwd=place)

    return run


def status(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "status.json").read_text())
    return content


def files(run: Path) -> dict[str, bytes]:
    """All of a run's, but for who held the lock last."""
    return {name: data for name, data in contents(run).items() if not name.endswith(".lock")}


@pytest.mark.parametrize("how", ["deleted", "deleted but latest", "not mounted"])
def test_whose_checkpoints_are_gone_does_not_begin_anew(how: str, place: Path, train: Again) -> None:
    """A refused start writes nothing but why."""
    run = place / "runs" / "small"
    shutil.rmtree(run / "checkpoints")
    if how == "deleted but latest":
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "latest").write_text("step-00000010\n")
    elif how == "not mounted":
        (run / "checkpoints").symlink_to(place / "scratch")
    before = files(run)
    done = train("training.max_updates=12")
    assert done.code == 2
    assert "checkpoints has none, and step-00000010 was saved there; bring them back" in done.err
    assert {**files(run), "status.json": b""} == {**before, "status.json": b""}, "something was written"
    assert (status(run)["state"], status(run)["step"]) == ("finished", 10)
    assert train("--fresh", "training.max_updates=2").code == 0
    assert status(run)["step"] == 2


@pytest.mark.parametrize("command", [("train",), ("launch", "local", "--nproc", "1")], ids=["train", "launch"])
def test_nothing_is_reset_without_a_checkpoint(command: tuple[str, ...], place: Path, forked: Forked) -> None:
    done = forked.zeromt(*command, "small.yaml", "name=smal", "--reset", "data,optimizer", cwd=place)
    assert done.code == 2
    assert "--reset: runs/smal has no checkpoint to take the weights from" in done.err
    assert not (place / "runs" / "smal").exists()


@pytest.mark.parametrize("kind", ["run", "mean"])
def test_one_that_was_moved_goes_on_where_it_is(kind: str, place: Path, train: Again, forked: Forked) -> None:
    before, options = place / "runs" / "small", ["training.max_updates=12"]
    if kind == "mean":
        before, options = place / "mean", ["--reset", "data,optimizer", "training.max_updates=2"]
        assert forked.zeromt("average", "runs/small", "--last", "2", "-o", "mean", cwd=place).code == 0
    (place / "elsewhere").mkdir()
    there = before.rename(place / "elsewhere" / "there")
    done = train(*options, config="elsewhere/there/config.yaml")
    assert done.code == 0, done.err
    assert status(there)["step"] == 12
    assert not before.exists(), "it began anew where it was before"


def test_a_finished_run_stays_finished(place: Path, train: Again) -> None:
    run = place / "runs" / "small"
    done = train("model.d_model=32")
    assert done.code == 2
    written = status(run)
    assert (written["state"], written["step"]) == ("finished", 10)
    assert "model.d_model: 32" in written["refusal"]["error"]
    lines = lines_of(read_overview(run))
    assert any(line.startswith("state") and "finished" in line for line in lines)
    assert any(line.startswith("refused") and "the last start: model.d_model: 32" in line for line in lines)
    assert train("training.max_updates=11").code == 0
    assert "refusal" not in status(run)


def test_one_that_is_reached_changes_nothing(place: Path, train: Again) -> None:
    """Nor where the newest checkpoint was saved before its step was scored."""
    run = place / "runs" / "small"
    train("training.max_updates=11", "evaluation.every_updates=0", "checkpoint.every_updates=4")
    before = files(run)
    for limit, said in (
        ("training.max_updates=11", "training.max_updates=11 is reached at step 11; training.max_updates above 11"),
        ("training.max_updates=5", "training.max_updates=5 is reached at step 11; training.max_updates above 11"),
        ("training.max_epochs=1", "training.max_epochs=1 is reached at step 11; training.max_epochs above 1"),
        ("training.max_minutes=1e-6", "training.max_minutes=1e-06 is reached at step 11"),
    ):
        more = () if "max_updates" in limit else ("training.max_updates=1000",)
        done = train(limit, *more)
        assert done.code == 0, done.err
        assert done.out.splitlines()[-1].startswith(f"runs/small: nothing to do: {said}")
        assert {**files(run), "status.json": b""} == {**before, "status.json": b""}
        assert (status(run)["state"], status(run)["step"]) == ("finished", 11)
    done = train("training.max_updates=11", "optimizer.lr=0.5")  # the model is not one of that rate
    assert done.code == 2
    assert "optimizer.lr: 0.5, but the run has finished with 0.0" in done.err
    assert {**files(run), "status.json": b""} == {**before, "status.json": b""}


def test_after_a_reset_they_count_from_there(place: Path, train: Again) -> None:
    run = place / "runs" / "small"
    done = train("--reset", "optimizer", "training.max_updates=3")
    assert done.code == 0, done.err
    assert "counted from step 10" in done.out
    assert "finished (training.max_updates=3, counted from step 10 is reached): runs/small" in done.out
    assert [line["step"] for line in read_metrics(run)][-3:] == [11, 12, 13]
    assert status(run)["stop_reason"] == "training.max_updates=3, counted from step 10 is reached"
    assert any("13 of 13 updates (100.0%)" in line for line in lines_of(read_overview(run)))
    done = train("training.max_updates=3")
    assert "training.max_updates=3, counted from step 10 is reached at step 13" in done.out
    assert train("training.max_updates=4").code == 0
    assert read_metrics(run)[-1]["step"] == 14


def test_are_said_and_written(place: Path, train: Again) -> None:
    run = place / "runs" / "small"
    done = train("training.max_updates=12", "optimizer.lr=1e-2", "model.dropout=0.3", "loss.label_smoothing=0.0")
    assert done.code == 0, done.err
    assert "changed at step 10: optimizer.lr was 0.003 and is 0.01" in done.out
    assert "changed at step 10: model.dropout was 0.1 and is 0.3" in done.out
    (event,) = [e for e in read_metrics(run, "event") if e["event"] == "changed"]
    assert event["fields"]["loss.label_smoothing"] == [0.1, 0.0]
    assert "prepare.output" not in event["fields"]


def test_the_same_again_says_nothing() -> None:
    run = load_run("debug")
    assert changed_fields(run, load_run("debug", ["output=elsewhere", "name=other"])) == {}
    phases = [[f"phases=[{{name: a, until: {{updates: {n}}}}}, {{name: b}}]"] for n in (5, 6)]
    assert changed_fields(*(load_run("debug", one) for one in phases)) == {"phases.0.until.updates": (5, 6)}
