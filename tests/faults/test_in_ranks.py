"""Rows 12, 13, 18 and 28: what two ranks live through, run after run in the same processes."""

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Corpus
from tests.faults.conftest import Run, injected, run_of
from tests.faults.injected import Fault, write_plan
from tests.faults.injected_runs import run_all
from tests.forked import Forked

SHORT = 15
SHORTER = f"training.max_updates={SHORT}"
FULL = 3000
"""Bytes of the largest file that a full disk takes."""
UNWRITABLE = Path("/sys/kernel")
"""Where nobody, not even root, makes a folder."""


@dataclass(frozen=True)
class Ended:
    """A run, and what it said on either rank."""

    run: Run
    outcomes: tuple[str, str]
    logs: tuple[str, str]


@pytest.fixture(scope="module")
def ended(corpus_en_fr: Corpus, shim: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    folder = tmp_path_factory.mktemp("in-ranks")
    given: dict[str, tuple[list[str], list[Fault]]] = {
        "full": (
            [SHORTER],
            [
                Fault(point="audit:os.chmod", path="tmp-step-00000005/model-", action="sleep", value=0.3),
                Fault(point="save", action="disk_full", rank=1, step=10, value=FULL),
                Fault(point="commit", action="disk_full", rank=1, since=11),
            ],
        ),
        "unwritable": (["checkpoint.every_updates=1", "checkpoint.max_failures=2"], []),
        "full-for-all": (
            [SHORTER, "training.tensorboard=true", "checkpoint.asynchronous=false"],
            [
                Fault(point="accumulate", action="disk_full", rank=0, step=3, value=FULL),
                Fault(point="accumulate", action="disk_full", rank=0, step=13),
            ],
        ),
    }
    runs = {name: run_of(folder, corpus_en_fr, name, overrides) for name, (overrides, _) in given.items()}
    for name, (_, faults) in given.items():
        write_plan(runs[name].plan, faults)
    runs["unwritable"].folder.mkdir()
    (runs["unwritable"].folder / "checkpoints").symlink_to(UNWRITABLE)
    with closing(Forked(*injected(shim, runs["full"]))) as forked:
        outcomes = forked.ranks(2, run_all, [(run.settings, run.plan) for run in runs.values()], cwd=folder)
    every = zip(runs.items(), *outcomes, strict=True)
    return {name: Ended(run, *zip(one, other, strict=True)) for (name, run), one, other in every}


def saves(run: Run) -> list[tuple[object, object, object]]:
    """(step, whether it succeeded, failures in a row) of every save."""
    return [(e["step"], e["succeeded"], e["checkpoint_failures"]) for e in run.events("checkpoint")]


def test_full_disk_on_one_rank(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 12: the save fails on all ranks, the older checkpoint stands, training goes on."""
    end = ended["full"]
    assert end.outcomes == ("finished", "finished")
    assert saves(end.run) == [(5, True, 0), (10, False, 1), (15, True, 0)]
    assert end.run.complete_steps() == [5, 15]
    assert end.run.leftovers() == []
    assert "checkpoint of step 10 failed, the older ones stand: rank 1: " in end.logs[0]
    assert os.strerror(27) in end.logs[0], "EFBIG"
    assert end.run.losses() == {step: loss for step, loss in undisturbed.losses().items() if step <= SHORT}
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_snapshot_is_of_its_step(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Row 18: weights change while they are written, and the files are those of their step."""
    run = ended["full"].run
    event = run.events("checkpoint")[0]
    assert event["seconds"] > event["stopped_seconds"] + 0.1, "nothing was trained meanwhile"  # type: ignore[operator]
    assert run.weights(5) == undisturbed.weights(5)


def test_disk_that_is_full_for_everyone(ended: dict[str, Ended], undisturbed: Run) -> None:
    """Rows 12 and 28: no file of rank 0 grows, TensorBoard's neither, and later they do again."""
    end = ended["full-for-all"]
    assert end.outcomes == ("finished", "finished")
    assert end.run.complete_steps() == [SHORT]
    assert end.run.leftovers() == []
    assert end.logs[0].count("TensorBoard failed and is dropped") == 1
    assert end.run.weights(SHORT) == undisturbed.weights(SHORT)


def test_unwritable_checkpoints(ended: dict[str, Ended]) -> None:
    """Row 13: loud, tried again, given up after so many failures on all ranks alike."""
    end = ended["unwritable"]
    for outcome in end.outcomes:
        assert outcome.startswith("TrainingError: 2 saves in a row failed")
        assert "checkpoints" in outcome
    assert end.logs[0].count("failed, the older ones stand") == 2
    assert saves(end.run) == [(1, False, 1), (2, False, 2)]
