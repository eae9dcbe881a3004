"""A run started again: what is gone, refused, moved or another's, and what the run's folder then says."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Finished
from tests.forked import Forked
from tests.small import small_runs

MORE = "training.max_updates=12"


class Place:
    """A small run that has finished at step 10, with the dataset and configuration that it was made of."""

    def __init__(self, folder: Path, forked: Forked) -> None:
        self.folder = Path(shutil.copytree(small_runs(), folder))
        self.run = self.folder / "runs" / "small"
        self._forked = forked

    def __call__(self, *arguments: str) -> Finished:
        done = self._forked.zeromt(*arguments, cwd=self.folder)
        return Finished(code=done.code, out=done.out + done.err, err=done.err)

    def train(self, *arguments: str, config: str = "small.yaml") -> Finished:
        return self("train", config, *arguments)

    def status(self, run: str = "runs/small") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", run, "--json").out)
        return found

    def contents(self) -> dict[str, str]:
        """What stands in the run's files, but for who held the lock last."""
        files = (p for p in self.run.rglob("*") if p.is_file() and p.suffix != ".lock")
        return {str(p.relative_to(self.run)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture
def place(tmp_path: Path, forked: Forked) -> Place:
    return Place(tmp_path / "kept", forked)


def test_run_whose_checkpoints_are_gone_does_not_begin_anew(place: Place) -> None:
    """As `latest` says; a refused start writes nothing but why."""
    shutil.rmtree(place.run / "checkpoints")
    (place.run / "checkpoints").mkdir()
    (place.run / "checkpoints" / "latest").write_text("step-00000010\n")
    before = place.contents()
    done = place.train(MORE)
    assert done.code == 2, done.out
    [error] = [line for line in done.out.splitlines() if line.startswith("zeromt: error: ")]
    assert "checkpoints/latest names 'step-00000010', and none is there; bring them back" in error
    after = place.contents()
    assert {**after, "status.json": ""} == {**before, "status.json": ""}, "something was written"
    assert (place.status()["state"], place.status()["step"]) == ("finished", 10)
    assert place.train("--fresh", "training.max_updates=2").code == 0
    assert place.status()["step"] == 2


def test_run_that_never_saved_begins_again(place: Place) -> None:
    """As after a crash before the first checkpoint, when a restart must need nobody."""
    shutil.rmtree(place.run / "checkpoints")
    (place.run / "status.json").write_text(json.dumps({"state": "failed", "step": 3, "launch_id": "old"}))
    done = place.train("training.max_updates=4")
    assert done.code == 0, done.out
    assert place.status()["step"] == 4


@pytest.mark.parametrize("command", [("train",), ("launch", "local", "--nproc", "1")], ids=["train", "launch"])
def test_nothing_is_reset_without_a_checkpoint(command: tuple[str, ...], place: Place) -> None:
    done = place(*command, "small.yaml", "name=smal", "--reset", "data,optimizer")
    assert done.code == 2, done.out
    assert "--reset: runs/smal has no checkpoint to take the weights from" in done.out
    assert not (place.folder / "runs" / "smal").exists()


def test_limits_that_are_reached_change_nothing(place: Place) -> None:
    """Where the newest checkpoint was saved before its step was scored, and where there is no validation set, too."""
    options = [MORE, "evaluation.every_updates=0", "checkpoint.every_updates=4", "evaluation.max_pairs=2"]
    assert place.train(*options).code == 0
    before = place.contents()
    for more in ([], ["training.max_minutes=1e-6"]):
        done = place.train(*options, *more)
        assert done.code == 0, done.out
        said = "\n".join(line for line in done.out.splitlines() if "nothing to do" in line)
        assert "training.max_updates=12 is reached at step 12; training.max_updates above 12 goes on" in said
        assert ("training.max_minutes=1e-06 is reached" in said) == bool(more), "every one that stands in the way"
        assert place.contents() == before


def test_time_that_is_up_makes_no_further_update(place: Place) -> None:
    """Nor where the last evaluation is still to be made, as after a stop in the middle of it."""
    options = ["training.max_updates=100", "training.max_minutes=1e-6", "schedule.kind=constant"]
    status = json.loads((place.run / "status.json").read_text())
    (place.run / "status.json").write_text(json.dumps({**status, "state": "stopped"}))
    state = place.run / "checkpoints" / "step-00000010" / "state.json"
    tree = json.loads(state.read_text())
    tree["trainer"]["scores"] = {name: {} for name in tree["trainer"]["scores"]}
    _replace(state, json.dumps(tree))
    for _ in range(2):
        done = place.train(*options)
        assert done.code == 0, done.out
        assert (place.status()["state"], place.status()["step"]) == ("finished", 10)
    assert "nothing to do" in done.out
    scores = json.loads(state.read_text())["trainer"]["scores"]
    assert "10" in scores["bleu"], "the checkpoint has the score that came late"


def _replace(path: Path, text: str) -> None:
    """A file of a checkpoint, and what the manifest says of it."""
    path.write_text(text)
    manifest = path.parent / "manifest.json"
    tree = json.loads(manifest.read_text())
    tree["files"][path.name] = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    manifest.write_text(json.dumps(tree))
    (path.parent / "manifest.sha256").write_text(hashlib.sha256(manifest.read_bytes()).hexdigest() + "\n")


def test_status_counts_from_a_reset(place: Place) -> None:
    assert place.train("--reset", "data,optimizer", "training.max_updates=2").code == 0
    shown = place("status", "runs/small").out
    assert "12 of 12 updates (100.0%)" in shown
    assert "finished (training.max_updates=2, counted from step 10 is reached" in shown


@pytest.mark.parametrize("kind", ["run", "mean"])
def test_run_that_was_moved_goes_on_where_it_is(kind: str, place: Place) -> None:
    options = [MORE]
    if kind == "mean":
        assert place("average", "runs/small", "--last", "2", "-o", "mean").code == 0
        options = ["--reset", "data,optimizer", "training.max_updates=2"]
    before = place.folder / ("mean" if kind == "mean" else "runs/small")
    (place.folder / "elsewhere").mkdir()
    place.run = before.rename(place.folder / "elsewhere" / "there")
    done = place.train(*options, config="elsewhere/there/config.yaml")
    assert done.code == 0, done.out
    assert place.status("elsewhere/there")["step"] == 12
    assert not before.exists(), "it began anew where it was before"
    asked = place.train("--reset", "data,optimizer", "name=other", config="elsewhere/there/config.yaml")
    assert asked.code == 2
    assert f"--reset: {place.folder / 'elsewhere' / 'other'} has no checkpoint" in asked.out, (
        "what is said aloud goes first"
    )
