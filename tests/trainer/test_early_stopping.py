"""A run ends where nothing becomes better, and schedules where the run ends. Resumed: test_everything.py."""

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from configs import ConfigError, load_run
from configs.components import make
from tests.conftest import read_metrics
from tests.everything import LAST, everything
from tests.forked import Forked
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.best import current_plateau
from trainer.limits import Limits
from trainer.terminal.forecast import Forecast
from trainer.terminal.tables import warnings_of

SETTINGS = ["training.tensorboard=false", "evaluation.max_pairs=2"]


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
    found = current_plateau(scores, higher_is_better=higher, min_delta=delta, after=after)
    assert dataclasses.astuple(found) == pytest.approx((num, best, step), nan_ok=True)


def test_only_scores_since_a_reset_count() -> None:
    config = load_run("debug", ["training.early_stopping={metric: chrf, patience: 2}"])
    chrf = {10: 50.0, 20: 40.0, 30: 30.0, 40: 29.0}
    state = TrainerState(step=40, scores={"bleu": {10: 1.0, 20: 2.0, 30: 3.0, 40: 4.0}, "chrf": chrf})
    [found] = Limits(config, state).reached(0)
    assert found.reason == "training.early_stopping: no chrf better than 50 of step 10 in 3 evaluations"
    assert found.advice.endswith("; a larger training.early_stopping.patience goes on")
    state.start_step = 20
    assert not Limits(config, state).reached(0)
    state.scores = {}  # measured otherwise
    assert not Limits(config, state).reached(0)


def test_a_run_ends_by_it_and_goes_on_with_more_patience(forked: Forked, tmp_path: Path) -> None:
    whole = everything(forked)
    status = json.loads((whole / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", LAST)
    assert status["stop_reason"].startswith("training.early_stopping: no nll better by more than 99 than ")
    place = Path(shutil.copytree(whole.parents[1], tmp_path / "place"))
    run = place / "runs" / "everything"
    again = forked.zeromt("train", str(run / "config.yaml"), cwd=place)
    assert (again.code, read_metrics(run)[-1]["step"]) == (0, LAST)
    assert "nothing to do: training.early_stopping: no nll better" in again.out
    more = forked.zeromt("train", str(run / "config.yaml"), "training.early_stopping.patience=4", cwd=place)
    assert more.code == 0, more.err
    assert read_metrics(run)[-1]["step"] == LAST + 3


class TestSchedulesAndClocks:
    @staticmethod
    def limits(state: TrainerState, *, max_updates: int = 1000, **schedule: Any) -> Limits:
        given = [f"training.max_updates={max_updates}", "training.max_minutes=10", "training.max_epochs=4"]
        config = load_run("debug", given)
        config = dataclasses.replace(config, schedule=make("schedule", "linear", warmup_updates=10, **schedule))
        return Limits(config, state, Forecast(config, state, updates_an_epoch=50))

    @pytest.mark.parametrize(
        ("ends_with", "seconds", "place", "state", "expected"),
        [
            ("updates", 300.0, (0, 55), {"step": 100}, 1000),
            ("updates", 0.0, (0, 55), {"step": 100, "skipped_updates": 7}, 993),  # nor is a skip part of it
            ("minutes", 300.0, None, {"step": 100}, 200),
            ("minutes", 30.0, None, {"step": 100}, 1000),  # max_updates is sooner
            ("minutes", 599.9999, None, {"step": 100}, 101),
            ("minutes", 700.0, None, {"step": 100}, 101),  # never behind the next update
            ("minutes", 0.0, None, {}, 1000),
            ("minutes", 300.0, None, {"step": 100, "start_step": 90, "start_seconds": 270, "schedule_start": 90}, 200),
            ("epochs", 0.0, (0, 0), {}, 200),
            ("epochs", 0.0, (0, 55), {"step": 55}, 200),  # as estimated until the first is over
            ("epochs", 0.0, (1, 10), {"step": 70}, 240),  # as counted: 60 in the first
            ("epochs", 0.0, (3, 65), {"step": 245}, 246),  # never behind the next update
            ("epochs", 0.0, (1, 0), {"step": 900}, 1000),  # max_updates is sooner
            ("epochs", 0.0, (0, 0), {"step": 90, "start_step": 90, "schedule_start": 90}, 200),  # in its own count
            ("first", 100.0, (0, 100), {"step": 100}, 200),
            ("first", 200.0, (1, 0), {"step": 100}, 300),
            ("first", 590.0, (0, 100), {"step": 100}, 102),
        ],
    )
    def test_where_a_schedule_ends(
        self, ends_with: str, seconds: float, place: tuple[int, int] | None, state: dict[str, Any], expected: int
    ) -> None:
        limits = self.limits(TrainerState(**state), ends_with=ends_with)
        assert limits.schedule_end(seconds, None, place) == expected

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            (
                ["schedule.ends_with=first", "training.max_epochs=null"],
                "first without training.max_target_tokens, max_epochs or max_minutes; set one, or ends_with: updates",
            ),
            (
                ["schedule.ends_with=first", "schedule.kind=constant"],
                "first with kind=constant, which has no end; set it to updates",
            ),
            ([], "epochs without training.max_epochs; set both, or ends_with: updates"),
            (["schedule.kind=constant"], "epochs with kind=constant, which has no end; set it to updates"),
            (["phases=[{name: a}]"], "epochs in a run with phases, each with epochs of its own; set it to updates"),
        ],
    )
    def test_limits_that_cannot_end_one(self, settings: list[str], said: str) -> None:
        given = ["schedule.ends_with=epochs", "schedule.kind=cosine", *(["training.max_epochs=2"] if settings else [])]
        with pytest.raises(ConfigError, match=f"^schedule.ends_with: {said}$"):
            load_run("debug", [*given, *settings])

    @pytest.mark.parametrize(
        ("place", "state", "said"),
        [
            ((0, 10), TrainerState(step=10, seconds=59.0), None),  # too early to tell
            ((0, 20), TrainerState(step=20, seconds=20.0), "max_epochs=4 ends the run near step 200, before its sch"),
            ((0, 10), TrainerState(step=10, seconds=61.0), "max_minutes=10.0 ends the run near step 98, before its "),
            ((0, 900), TrainerState(step=900, seconds=580.0), None),
        ],
    )
    def test_what_cuts_one_short_is_warned_of_once(
        self, place: tuple[int, int], state: TrainerState, said: str | None
    ) -> None:
        limits = self.limits(state)
        found = limits.warning(place)
        assert (found or "").startswith("" if said is None else f"training.{said}")
        assert (found is None) == (said is None)
        assert limits.warning(place) is None
        assert self.limits(state, ends_with="first").warning(place) is None

    def test_in_a_run_of_epochs(self, place: Path, forked: Forked) -> None:
        """All ranks have the same rate, or they would not stay alike."""
        given = ["schedule={kind: cosine, warmup_updates: 2, ends_with: epochs}", "training.max_updates=1000"]
        given += ["training.max_epochs=2", "evaluation.every_updates=9", "checkpoint.every_updates=7", "name=epochs"]
        given += ["stability.hash_every_updates=1", "training.log_every=1", "engine.zero_stage=0"]
        done = forked.trainer(2, "small.yaml", *SETTINGS, *given, cwd=place)
        assert done.code == 0, done.err
        rates = [line["lr"] for line in read_metrics(place / "runs" / "epochs")]
        assert rates[-1] < 0.02 * max(rates)
        assert "ends the run near step " not in done.out
        out_of_step = "evaluation.every_updates=9 is no multiple of checkpoint.every_updates=7, so the best step"
        assert done.out.index(out_of_step) < done.out.index("\nstep 1 ")

    def test_in_a_run_of_minutes(self, place: Path, forked: Forked) -> None:
        given = ["schedule={kind: linear, warmup_updates: 2, ends_with: minutes}", "training.max_updates=1000000"]
        given += ["training.max_minutes=0.06", "evaluation.every_updates=0", "name=clock"]
        done = forked.zeromt("train", "small.yaml", *SETTINGS, *given, cwd=place)
        assert done.code == 0, done.err
        rates = [line["lr"] for line in read_metrics(place / "runs" / "clock")]
        assert rates[-1] < 0.1 * max(rates)
        assert "training.max_minutes=0.06 is reached" in done.out
        assert "ends the run near step " not in done.out


@pytest.mark.parametrize(
    ("scored", "saved", "keep_best", "is_told"),
    [(600, 300, 1, False), (0, 300, 1, False), (2000, 300, 1, False), (300, 200, 0, False), (300, 200, 1, True),
     (100, 0, 1, True)],
)  # fmt: skip
def test_a_best_step_without_a_checkpoint_is_warned_of(scored: int, saved: int, keep_best: int, is_told: bool) -> None:
    every = [f"evaluation.every_updates={scored}", f"checkpoint.every_updates={saved}", "training.max_updates=1000"]
    said = [
        f"evaluation.every_updates={scored} is no multiple of checkpoint.every_updates={saved}, so the best step may "
        f"have no checkpoint; set checkpoint.every_updates={scored}"
    ]
    found = warnings_of(load_run("debug", [*every, f"checkpoint.keep_best={keep_best}", "schedule.warmup_updates=9"]))
    assert list(found) == (said if is_told else [])


def test_a_warm_up_beyond_the_end_is_warned_of() -> None:
    long, short = (load_run("debug", [f"schedule.warmup_updates={n}", "training.max_updates=100"]) for n in (400, 100))
    said = (
        "schedule.warmup_updates=400 is above training.max_updates=100, so the rate ends at 25.0% of optimizer.lr; set "
        "schedule.warmup_updates to 10 or so"
    )
    assert said in list(warnings_of(long))
    assert said not in list(warnings_of(short))
