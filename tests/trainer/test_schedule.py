"""The learning rate at chosen updates."""

import math
import random
import re
from pathlib import Path

import pytest
import torch

from configs import ConfigError, load_run
from configs.components import make
from tests.conftest import read_metrics
from tests.forked import Forked
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


def test_vaswani_is_inverse_sqrt_with_its_own_peak() -> None:
    width, warmup = 512, 4000
    schedule = make("schedule", "inverse_sqrt", warmup_updates=warmup)
    for update in (1, 100, 4000, 10_000, 100_000):
        paper = width**-0.5 * min(update**-0.5, update * warmup**-1.5)
        ours = schedule.rate(update, peak=(width * warmup) ** -0.5, last=10**6)
        assert math.isclose(paper, ours, rel_tol=1e-12)


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


class TestScores:
    """A schedule that follows the scores of evaluations, in the trainer."""

    GIVEN = ("schedule={kind: plateau, metric: nll, patience: 2, warmup_updates: 0}", "optimizer.lr=0.8")

    @pytest.mark.parametrize(
        ("scores", "lr"),
        [
            ({}, 0.8),
            ({5: 3.0, 10: 2.0, 15: 2.5}, 0.8),
            ({5: 3.0, 10: 2.0, 15: 2.5, 20: 2.0}, 0.4),
            ({5: 3.0, 10: 2.0, 15: 2.5, 20: 2.0, 25: 1.0, 30: 1.0, 35: math.nan}, 0.2),
        ],
    )
    def test_the_named_figure_is_followed(self, scores: dict[int, float], lr: float) -> None:
        state = TrainerState(step=40, scores={"nll": scores})
        assert Limits(load_run("debug", self.GIVEN), state).rate(0.0, 40) == pytest.approx(lr)

    def test_those_of_before_a_reset_or_the_schedules_phase_do_not_count(self) -> None:
        scores = {"nll": {5: 1.0, 10: 2.0, 15: 3.0, 20: 4.0}}
        state = TrainerState(step=20, start_step=10, schedule_start=10, scores=scores)
        assert Limits(load_run("debug", self.GIVEN), state).rate(0.0, 20) == pytest.approx(0.8)
        own = f"phases=[{{name: a, until: {{updates: 9}}}}, {{name: b, {self.GIVEN[0].replace('=', ': ', 1)}}}]"
        phase = PhaseState(number=1, name="b", step=15, epoch=0, applied=15)
        state = TrainerState(step=20, scores=scores, phase=phase)
        assert Limits(load_run("debug", [own, self.GIVEN[1]]), state).rate(0.0, 20) == pytest.approx(0.8)

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
    def test_what_cannot_be_followed_is_refused(self, setting: str, said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_run("debug", [*self.GIVEN, setting])


class TestTokens:
    """A schedule that counts target tokens."""

    GIVEN = (
        "schedule={kind: wsd, warmup_tokens: 1_000, decay_tokens: 2_000, decay: linear}",
        "training.max_target_tokens=10_000",
        "optimizer.lr=0.8",
    )

    @pytest.mark.parametrize(
        ("tokens", "skipped", "next_tokens", "lr"),
        [(0, 0, 250, 0.2), (500, 0, 250, 0.6), (1500, 1000, 250, 0.6), (8_000, 0, 500, 0.6), (9_500, 500, 1_000, 0.0)],
    )
    def test_its_own_and_those_of_applied_updates_count(
        self, tokens: int, skipped: int, next_tokens: int, lr: float
    ) -> None:
        state = TrainerState(step=7, target_tokens=tokens, skipped_updates=skipped > 0, skipped_tokens=skipped)
        limits = Limits(load_run("debug", self.GIVEN), state)
        assert limits.rate(0.0, 7, target_tokens=next_tokens) == pytest.approx(lr)

    def test_they_count_from_the_last_reset(self) -> None:
        state = TrainerState(
            step=9, start_step=7, schedule_start=7, target_tokens=5_500, schedule_start_tokens=5_000, start_tokens=5_000
        )
        limits = Limits(load_run("debug", self.GIVEN), state)
        assert limits.rate(0.0, 9, target_tokens=250) == pytest.approx(0.6)
        assert limits.schedule_end(0.0, 9) == 10_000
        assert not limits.reached(0)
        state.target_tokens = 15_000
        [limit] = limits.reached(0)
        assert limit.reason == "training.max_target_tokens=10,000, counted from step 7 is reached"

    @pytest.mark.parametrize(
        ("setting", "said"),
        [
            ("training.max_target_tokens=null", "schedule.warmup_tokens: 1000 without training.max_target_tokens, at"),
            ("schedule.decay_updates=5", "schedule.decay_updates: 5 in a schedule that counts tokens, as it has warm"),
            ("schedule.warmup_tokens=null", "schedule.decay_tokens: 2000 in a schedule that counts updates, as it has"),
            ("schedule.warmup_tokens=10000", "schedule.warmup_tokens: 10000 leaves no tokens to decay in; it must be"),
            ("schedule.decay_tokens=9500", "schedule.decay_tokens: 9500 after a warm-up of 1000; together no more"),
            (
                "phases=[{name: a, schedule: {kind: constant, warmup_tokens: 5}}]",
                "phases.0.schedule.warmup_tokens: a ph",
            ),
        ],
    )
    def test_what_does_not_fit_is_refused(self, setting: str, said: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(said)):
            load_run("debug", [*self.GIVEN, setting])

    def test_in_a_run(self, place: Path, forked: Forked) -> None:
        """Each rate is that of the tokens until then; the run ends with the update that has the last of them."""
        wsd = "schedule={kind: wsd, warmup_tokens: 1500, decay_tokens: 2500}"
        given = [wsd, "training.max_target_tokens=5000", "training.max_updates=1000", "name=tokens"]
        done = forked.zeromt("train", "small.yaml", *given, cwd=place)
        assert done.code == 0, done.err
        schedule = load_run(str(place / "small.yaml"), given).schedule
        lines = read_metrics(place / "runs" / "tokens")
        counted = [line["total_target_tokens"] for line in lines]
        assert counted[-2] < 5000 <= counted[-1]
        rates = [schedule.rate(tokens, peak=0.003, last=5000) for tokens in counted]
        assert [line["lr"] for line in lines] == pytest.approx(rates)
