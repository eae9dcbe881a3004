"""Where a run and its schedule end, and how far it has come, by hand. Resumed: test_everything.py."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from configs import ConfigError, load_run
from configs.components import make
from tests.conftest import Corpus
from tests.everything import LAST, everything
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.checkpoint.state import TrainerState
from trainer.engines.batches import StepResult
from trainer.evaluation.scores import current_plateau
from trainer.limits import Limits
from trainer.loop import Trainer
from trainer.ranks.distributed import World
from trainer.terminal import warnings_of


def rates(world: World, settings: list[str]) -> list[float]:
    """As a rank, to which an update takes a second on rank 0, and longer on others: the rates of a run."""
    lrs: list[float] = []

    def listen(built: Trainer, world: World) -> None:
        step = built.run.engine.step

        def heard(lr: float) -> StepResult:
            lrs.append(lr)
            built.run.state.seconds += 1 + world.rank
            return step(lr)

        built.run.engine.step = heard  # type: ignore[method-assign]

    train_all(world, [settings], listen)
    return lrs


@pytest.mark.parametrize(
    ("scores", "higher", "delta", "after", "expected"),
    [
        ({}, True, 0.0, 0, (0, math.nan, 0)),
        ({10: 1.0, 20: 2.0, 30: 2.0}, True, 0.0, 0, (1, 2.0, 20)),
        ({10: 1.0, 20: 2.0, 30: 2.4, 40: 2.6}, True, 0.5, 0, (0, 2.6, 40)),
        ({10: 1.0, 20: 2.0, 30: 2.4, 40: 2.5}, True, 0.5, 0, (2, 2.0, 20)),
        ({10: 3.0, 20: 2.0, 30: 5.0, 40: 2.0}, False, 0.0, 0, (2, 2.0, 20)),
        ({10: 3.0, 20: 2.0, 30: 1.0, 40: 2.0}, True, 0.0, 20, (2, 3.0, 10)),
        ({10: 3.0, 20: math.nan, 30: 4.0}, True, 0.0, 0, (0, 4.0, 30)),
        ({10: math.nan, 20: math.nan}, True, 0.0, 0, (2, math.nan, 0)),
        ({10: math.inf, 20: 1.0}, False, 0.0, 0, (0, 1.0, 20)),
        ({10: -1.0, 20: -2.0}, True, 0.0, 0, (1, -1.0, 10)),
    ],
)
def test_table(
    scores: dict[int, float], higher: bool, delta: float, after: int, expected: tuple[int, float, int]
) -> None:
    num, best, step = expected
    plateau = current_plateau(scores, higher_is_better=higher, min_delta=delta, after=after)
    assert plateau == pytest.approx((num, best, step), nan_ok=True)


def test_only_scores_since_a_reset_count() -> None:
    config = load_run("debug", ["training.early_stopping={metric: chrf, patience: 2}"])
    chrf = {10: 50.0, 20: 40.0, 30: 30.0, 40: 29.0}
    state = TrainerState(step=40, scores={"bleu": {10: 1.0, 20: 2.0, 30: 3.0, 40: 4.0}, "chrf": chrf})
    [limit] = Limits(config, state).reached(0)
    assert limit.reason == "training.early_stopping: no chrf better than 50 of step 10 in 3 evaluations"
    assert limit.advice.endswith("; a larger training.early_stopping.patience continues")
    state.start_step = 20
    assert not Limits(config, state).reached(0)
    state.scores = {}  # measured otherwise
    assert not Limits(config, state).reached(0)


def test_a_run_ends_by_it(forked: Forked) -> None:
    whole = everything(forked)
    status = json.loads((whole / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", LAST)
    assert status["stop_reason"].startswith("training.early_stopping: no nll better by more than 99 than ")


def limits_of(state: TrainerState, *, max_updates: int = 1000, **schedule: Any) -> Limits:
    given = [f"training.max_updates={max_updates}", "training.max_minutes=10"]
    config = load_run("debug", given)
    config = dataclasses.replace(config, schedule=make("schedule", "linear", warmup_updates=10, **schedule))
    return Limits(config, state)


@pytest.mark.parametrize(
    ("ends_with", "seconds", "state", "expected"),
    [
        ("updates", 300.0, {"step": 100}, 1000),
        ("updates", 0.0, {"step": 100, "skipped_updates": 7}, 993),  # nor is a skip part of it
        ("minutes", 300.0, {"step": 100}, 200),
        ("minutes", 30.0, {"step": 100}, 1000),  # max_updates is sooner
        ("minutes", 599.9999, {"step": 100}, 101),
        ("minutes", 700.0, {"step": 100}, 101),  # never behind the next update
        ("minutes", 0.0, {"step": 0}, 1000),
        ("minutes", 300.0, {"step": 100, "start_step": 90, "start_seconds": 270, "schedule_start": 90}, 200),
    ],
)
def test_where_a_schedule_ends(ends_with: str, seconds: float, state: dict[str, Any], expected: int) -> None:
    limits = limits_of(TrainerState(**state), ends_with=ends_with)
    assert limits.schedule_end(seconds, state["step"]) == expected


@pytest.mark.parametrize("settings", [(), ("training.max_minutes=9", "schedule.kind=constant")])
def test_minutes_that_cannot_end_one(settings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"^schedule\.ends_with: minutes; it needs training\.max_min"):
        load_run("debug", ["schedule.kind=cosine", "schedule.ends_with=minutes", *settings])


def test_in_a_run_of_minutes(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """All ranks have the same rate, whatever their clocks say, or they would not stay alike."""
    given = ["schedule={kind: linear, warmup_updates: 2, ends_with: minutes}", "training.max_updates=1000000"]
    given += ["training.max_minutes=0.5", "evaluation.every_updates=0", "evaluation.max_pairs=2"]
    given += [*corpus_en_fr.overrides, "training.tensorboard=false", f"output={tmp_path}"]
    one, other = forked.ranks(2, rates, given, cwd=tmp_path)
    assert one == other
    assert 10 < len(one) <= 31
    assert one[-1] < 0.1 * max(one)


@pytest.mark.parametrize(("scored", "saved", "is_told"), [(600, 300, False), (2000, 300, False), (300, 200, True)])
def test_a_best_step_without_a_checkpoint_is_warned_of(scored: int, saved: int, is_told: bool) -> None:
    every = [f"evaluation.every_updates={scored}", f"checkpoint.every_updates={saved}", "training.max_updates=1000"]
    lines = list(warnings_of(load_run("debug", [*every, "checkpoint.keep_best=1", "schedule.warmup_updates=9"])))
    assert [line.partition("; ")[2] for line in lines] == ["set checkpoint.every_updates=300"] * is_told


def test_a_warm_up_beyond_the_end_is_warned_of() -> None:
    long, short = (load_run("debug", [f"schedule.warmup_updates={n}", "training.max_updates=100"]) for n in (400, 100))
    said = (
        "schedule.warmup_updates=400 is above training.max_updates=100, so the rate ends at 25.0% of optimizer.lr; set "
        "schedule.warmup_updates to 10 or so"
    )
    assert said in list(warnings_of(long))
    assert said not in list(warnings_of(short))


@pytest.mark.parametrize(
    ("settings", "epoch", "number", "fraction", "left", "share"),
    [
        # 60 of 100 updates, 50 of them in this start's 500 s.
        (["max_updates=100"], 0, 59, 0.6, 400.0, "60 of 100 updates"),
        # 700 s of 1,000: nearer than the updates.
        (["max_updates=100", "max_minutes=16.6666666"], 0, 59, 0.7, 300.0, "60 updates, 11:40 of 16:39"),
        (["max_updates=100", "max_minutes=1000"], 0, 59, 0.6, 400.0, "60 of 100 updates"),
        (["max_updates=100", "max_target_tokens=8000"], 0, 59, 0.75, 200.0, "60 updates, 6,000 of 8,000 target tokens"),
        # No epoch is over: 75 updates in each, as estimated, and 90 to go.
        (["max_updates=10000", "max_epochs=2"], 0, 59, 60 / 150, 900.0, "60 updates, 0.8 of 2 epochs"),
        # Two epochs are over, with 25 updates each, whatever was estimated; 15 to go.
        (["max_updates=10000", "max_epochs=3"], 2, 9, 60 / 75, 150.0, "60 updates, 2.4 of 3 epochs"),
        (["max_updates=10000", "max_epochs=2"], 2, 9, 1.0, 0.0, "60 updates, 2.4 of 2 epochs"),
    ],
)
def test_outlook(settings: list[str], epoch: int, number: int, fraction: float, left: float, share: str) -> None:
    config = load_run("debug", [f"training.{setting}" for setting in settings])
    state = TrainerState(step=10, seconds=200.0)
    limits = Limits(config, state, updates_an_epoch=75)
    assert limits.look(0, 9).seconds_left is None
    state.step, state.seconds, state.target_tokens = 60, 700.0, 6000
    outlook = limits.look(epoch, number)
    assert outlook.share == share
    assert (outlook.fraction, outlook.seconds_left) == pytest.approx((fraction, left), rel=1e-6)


def test_outlook_after_a_reset() -> None:
    state = TrainerState(step=500, seconds=3_600.0, start_step=500, start_seconds=3_600.0, start_epoch=3)
    limits = Limits(load_run("debug", ["training.max_updates=100", "training.max_epochs=2"]), state)
    state.step, state.seconds = 550, 3_700.0
    assert str(limits.look(3, 49)) == "50.0% done  01:40 left"
    assert limits.look(4, 9).fraction == pytest.approx(1.25 / 2)
