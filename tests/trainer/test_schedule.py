"""The learning rate at chosen updates."""

import math
import random
import re

import pytest
import torch

from configs import ConfigError, load_run
from configs.components import make
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.limits import Limits


@pytest.mark.parametrize(
    ("kind", "warmup", "floor", "update", "expected"),
    [
        ("inverse_sqrt", 100, 0.0, 1, 0.01),
        ("inverse_sqrt", 100, 0.0, 100, 1.0),
        ("inverse_sqrt", 100, 0.0, 400, 0.5),
        ("inverse_sqrt", 100, 0.6, 400, 0.6),
        ("inverse_sqrt", 0, 0.0, 4, 0.5),
        ("cosine", 0, 0.0, 1, 1.0),
        ("cosine", 100, 0.0, 550, 0.5),
        ("cosine", 100, 0.2, 1000, 0.2),
        ("linear", 100, 0.0, 550, 0.5),
        ("linear", 100, 0.0, 1000, 0.0),
        ("linear", 100, 0.0, 2000, 0.0),
        ("constant", 0, 0.0, 1, 1.0),
        ("constant", 10, 0.0, 5, 0.5),
        ("constant", 10, 0.0, 10**6, 1.0),
        ("wsd", 100, 0.0, 50, 0.5),
        ("wsd", 100, 0.0, 800, 1.0),
        ("wsd", 100, 0.0, 850, 0.5),
        ("wsd", 100, 0.2, 1000, 0.2),
        ("wsd", 100, 0.2, 1100, 0.2),
        ("plateau", 100, 0.1, 10**6, 1.0),
    ],
)
def test_rate(kind: str, warmup: int, floor: float, update: int, expected: float) -> None:
    fields = {"min_lr_ratio": floor} if kind != "constant" else {}
    schedule = make("schedule", kind, warmup_updates=warmup, **fields)
    assert schedule.rate(update, peak=1.0, last=1000) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("patience", "min_delta"), [(1, 0.0), (2, 0.5), (3, 0.0)])
def test_plateaus_are_torchs(patience: int, min_delta: float) -> None:
    """Whose patience is the number of evaluations that are borne, and whose floor is no fraction."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=2.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=patience - 1, threshold=min_delta, threshold_mode="abs", min_lr=0.1
    )
    ours = make("schedule", "plateau", warmup_updates=0, patience=patience, min_delta=min_delta, min_lr_ratio=0.05)
    draw, scores = random.Random(7), []
    for number in range(60):
        scores.append(min(number, 10) + draw.random())
        theirs.step(scores[-1])
        assert ours.rate(number + 1, peak=2.0, last=1, scores=scores) == theirs.get_last_lr()[0]
    assert ours.rate(61, peak=2.0, last=1, scores=[*scores, math.nan] + [math.nan] * 60) == 0.1


"""A schedule that follows the scores of evaluations, in the trainer."""

GIVEN = ("schedule={kind: plateau, metric: nll, patience: 2, warmup_updates: 0}", "optimizer.lr=0.8")
"""A schedule that follows the scores of evaluations."""


@pytest.mark.parametrize(
    ("scores", "lr"),
    [
        ({}, 0.8),
        ({5: 3.0, 10: 2.0, 15: 2.5}, 0.8),
        ({5: 3.0, 10: 2.0, 15: 2.5, 20: 2.0}, 0.4),
        ({5: 3.0, 10: 2.0, 15: 2.5, 20: 2.0, 25: 1.0, 30: 1.0, 35: math.nan}, 0.2),
    ],
)
def test_the_named_figure_is_followed(scores: dict[int, float], lr: float) -> None:
    state = TrainerState(step=40, scores={"nll": scores})
    assert Limits(load_run("debug", GIVEN), state).rate(0.0, 40) == pytest.approx(lr)


def test_those_of_before_a_reset_or_the_schedules_phase_do_not_count() -> None:
    scores = {"nll": {5: 1.0, 10: 2.0, 15: 3.0, 20: 4.0}}
    state = TrainerState(step=20, start_step=10, schedule_start=10, scores=scores)
    assert Limits(load_run("debug", GIVEN), state).rate(0.0, 20) == pytest.approx(0.8)
    own = f"phases=[{{name: a, until: {{updates: 9}}}}, {{name: b, {GIVEN[0].replace('=', ': ', 1)}}}]"
    phase = PhaseState(number=1, name="b", step=15, epoch=0, applied=15)
    state = TrainerState(step=20, scores=scores, phase=phase)
    assert Limits(load_run("debug", [own, GIVEN[1]]), state).rate(0.0, 20) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "schedule.metric=blue",
            "schedule.metric: blue is not a figure of evaluations; use one of bleu, chrf, ",
        ),
        (
            "evaluation.every_updates=0",
            "schedule: with evaluation.every_updates=0; set every_updates above",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_run("debug", [*GIVEN, setting])


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "schedule={kind: linear, warmup_updates: 100}",
            "schedule.warmup_updates: 100 leaves no updates to decay in; ",
        ),
        (
            "schedule={kind: wsd, warmup_updates: 60, decay_updates: 50}",
            "schedule.decay_updates: 50 after a warm-up of",
        ),
        ("phases=[{name: a, schedule: {kind: cosine, warmup_updates: 100}}]", "phases.0.schedule.warmup_updates: 100 "),
    ],
)
def test_lengths_that_do_not_fit_are_refused(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_run("debug", ["training.max_updates=100", "schedule.warmup_updates=9", setting])


def test_a_limit_of_target_tokens_counts_from_the_last_reset() -> None:
    limits = Limits(
        load_run("debug", ["training.max_target_tokens=10_000"]),
        state := TrainerState(step=9, start_step=7, target_tokens=14_999, start_tokens=5_000),
    )
    assert not limits.reached(0)
    state.target_tokens = 15_000
    [limit] = limits.reached(0)
    assert limit.reason == "training.max_target_tokens=10,000, counted from step 7 is reached"
