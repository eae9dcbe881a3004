"""A run ends where nothing becomes better: as a table, on one and two ranks, after a kill between two evaluations."""

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
from tests.forked import Forked
from tests.small import small_runs
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.best import current_plateau
from trainer.limits import Limits
from trainer.terminal.forecast import Forecast
from trainer.terminal.tables import never_warm, unsaved_best

KILLER = '''
"""A tracker that ends its process without a word, once, at a step."""

import os
import signal

from configs.components import Tracker, component


class Killing:
    def __init__(self, file, step):
        self.file, self.step = file, step

    def train(self, step, figures):
        if step == self.step and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def evaluation(self, step, figures, samples, attentions):
        pass

    def event(self, step, figures):
        pass

    def close(self):
        pass


@component("tracker", "killer")
class Killer(Tracker):
    """Kills at a step."""

    step: int

    def open(self, folder, *, config, resume_step):
        return Killing(folder / "killed", self.step)
'''
RESUMED, EVERY, LAST, SAVED, KILLED = 10, 3, 44, 7, 20
"""Updates: of the run that goes on, between evaluations, in all, between saves, and done when the run is killed."""
SETTINGS = [
    f"training.max_updates={LAST}",
    f"evaluation.every_updates={EVERY}",
    f"checkpoint.every_updates={SAVED}",
    "training.memory_probe=false",
    "training.tensorboard=false",
    "evaluation.max_pairs=2",
    "optimizer.lr=0.01",
]
PATIENCE, AFTER = 3, 3


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
    found = Limits(config, state).is_standing_still()
    assert found is not None
    assert found.reason == "training.early_stopping: no chrf better than 50 of step 10 in 3 evaluations"
    assert found.advice.endswith("training.early_stopping.patience above 3 goes on")
    state.start_step = 20
    assert Limits(config, state).is_standing_still() is None
    state.scores = {}  # measured otherwise
    assert Limits(config, state).is_standing_still() is None


@pytest.fixture(scope="module")
def curve(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The nll of a run that nothing ends."""
    place = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("whole") / "place"))
    done = forked.trainer(1, "small.yaml", *SETTINGS, cwd=place)
    assert done.code == 0, done.err
    lines = read_metrics(place / "runs" / "small", "evaluation")
    return {line["step"]: line["nll"] for line in lines if line["step"] > RESUMED}


def expected_stop(curve: dict[int, float]) -> tuple[float, int]:
    """A `min_delta` in the middle of the widest gap between what comes about, and where a run stops by it.

    Reckoned from the curve alone: so that rounding, which differs between world sizes, decides nothing.
    """
    steps = sorted(curve)

    def stop_and_margin(delta: float) -> tuple[int | None, float]:
        best, since, margin = curve[steps[0]], 0, math.inf
        for step in steps[1:]:
            gain = best - curve[step]
            margin = min(margin, abs(gain - delta))
            best, since = (curve[step], 0) if gain > delta else (best, since + (step > AFTER))
            if since == PATIENCE:
                return step, margin
        return None, 0.0

    tried = [(stop_and_margin(delta / 1000), delta / 1000) for delta in range(1, 400)]
    (stop, margin), delta = max(
        (one for one in tried if one[0][0] is not None and KILLED + EVERY < one[0][0] < LAST), key=lambda one: one[0][1]
    )
    assert stop is not None
    assert margin > 1e-3, "rounding would decide"
    return delta, stop


@pytest.mark.parametrize("how", ["one-rank", "two-ranks", "killed-between-evaluations"])
def test_the_same_decision_on_any_number_of_ranks_and_after_a_kill(
    how: str, curve: dict[int, float], tmp_path: Path, forked: Forked
) -> None:
    place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
    delta, stop = expected_stop(curve)
    stopping = f"training.early_stopping={{metric: nll, patience: {PATIENCE}, min_delta: {delta}, after: {AFTER}}}"
    arguments = ["small.yaml", *SETTINGS, stopping]
    if how == "killed-between-evaluations":
        kill_and_go_on(place, arguments, forked)
    else:
        done = forked.trainer(2 if how == "two-ranks" else 1, *arguments, cwd=place)
        assert done.code == 0, done.err
    run = place / "runs" / "small"
    assert read_metrics(run)[-1]["step"] == stop
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["step"]) == ("finished", stop)
    assert status["stop_reason"].startswith(f"training.early_stopping: no nll better by more than {delta:g} than ")
    assert (run / "checkpoints" / f"step-{stop:08d}").is_dir()
    if how != "one-rank":
        return
    again = forked.zeromt("train", *arguments, cwd=place)
    assert (again.code, read_metrics(run)[-1]["step"]) == (0, stop)
    assert "nothing to do: training.early_stopping: no nll better" in again.out
    more = forked.zeromt("train", *arguments, f"training.early_stopping.patience={PATIENCE + 1}", cwd=place)
    assert more.code == 0, more.err
    assert read_metrics(run)[-1]["step"] > stop


def kill_and_go_on(place: Path, arguments: list[str], forked: Forked) -> None:
    """Have the run killed between two evaluations, some updates and an evaluation behind its newest checkpoint."""
    assert KILLED % EVERY
    assert KILLED % SAVED > EVERY
    (place / "killer.py").write_text(KILLER)
    for code, step in ((-9, KILLED), (0, None)):
        killer = [f"trackers=[{{kind: killer, step: {KILLED}}}]", "--plugins", "killer.py"]
        done = forked.trainer(1, *arguments, *killer, cwd=place)
        assert done.code == code, done.err
        assert step is None or read_metrics(place / "runs" / "small")[-1]["step"] == step
    assert f"step {KILLED // SAVED * SAVED}, epoch" in done.out, "it went on from before what was lost"


class TestSchedulesAndClocks:
    @staticmethod
    def limits(state: TrainerState, *, max_updates: int = 1000, **schedule: Any) -> Limits:
        given = [f"training.max_updates={max_updates}", "training.max_minutes=10", "training.max_epochs=4"]
        config = load_run("debug", given)
        config = dataclasses.replace(config, schedule=make("schedule", "linear", warmup_updates=10, **schedule))
        return Limits(config, state, Forecast(config, state, updates_an_epoch=50))

    def test_a_schedule_ends_where_the_clock_does(self) -> None:
        state = TrainerState(step=100, seconds=300.0)
        assert self.limits(state).schedule_end(300.0) == 1000
        assert self.limits(state, ends_with="minutes").schedule_end(300.0) == 200
        assert self.limits(state, ends_with="minutes").schedule_end(30.0) == 1000, "max_updates is sooner"
        assert self.limits(state, ends_with="minutes").schedule_end(599.9999) == 101
        assert self.limits(state, ends_with="minutes").schedule_end(700.0) == 101, "never behind the next update"
        assert self.limits(TrainerState(), ends_with="minutes").schedule_end(0.0) == 1000
        assert self.limits(TrainerState(step=100, skipped_updates=7)).schedule_end(0.0) == 993, (
            "nor is a skip part of it"
        )
        after_reset = TrainerState(step=100, seconds=300.0, start_step=90, start_seconds=270.0, schedule_start=90)
        assert self.limits(after_reset, ends_with="minutes").schedule_end(300.0) == 10 + 190

    @pytest.mark.parametrize(
        ("step", "start", "place", "expected"),
        [
            (0, 0, (0, 0), 200),
            (30, 0, (0, 30), 200),  # as estimated
            (55, 0, (0, 55), 200),  # until the first is over
            (60, 0, (1, 0), 240),  # as counted: 60 in the first
            (70, 0, (1, 10), 240),
            (239, 0, (3, 59), 240),
            (245, 0, (3, 65), 246),  # never behind the next update
            (900, 0, (1, 0), 1000),  # max_updates is sooner
            (90, 90, (0, 0), 200),  # after a reset, in the schedule's own count
        ],
    )
    def test_a_schedule_ends_where_the_epochs_do(
        self, step: int, start: int, place: tuple[int, int], expected: int
    ) -> None:
        state = TrainerState(step=step, start_step=start, schedule_start=start)
        assert self.limits(state, ends_with="epochs").schedule_end(0.0, step, place) == expected
        assert self.limits(state).schedule_end(0.0, step, place) == 1000, "and with the updates it does not"

    @pytest.mark.parametrize(
        ("seconds", "place", "most", "expected"),
        [
            (100.0, (0, 100), 1000, 200),
            (200.0, (1, 0), 1000, 300),
            (590.0, (0, 100), 1000, 102),
            (300.0, (0, 100), 150, 150),
        ],
    )
    def test_a_schedule_ends_with_what_comes_first(
        self, seconds: float, place: tuple[int, int], most: int, expected: int
    ) -> None:
        """Four epochs of 50 updates or of the first one's 100, ten minutes, or the updates."""
        state = TrainerState(step=100, seconds=seconds)
        limits = self.limits(state, ends_with="first", max_updates=most)
        assert limits.schedule_end(seconds, 100, place) == expected
        assert not list(limits.early_ends(place))

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

    def test_what_is_known_to_cut_one_is_warned_of_at_the_start(self) -> None:
        assert list(self.limits(TrainerState()).early_ends((0, 0))) == [
            "training.max_epochs=4 ends the run near step 200, and the schedule is made for 1,000: the learning rate "
            "will be at 81% of its peak then; schedule.ends_with=epochs brings it to its end with them"
        ]
        assert not list(self.limits(TrainerState(), ends_with="epochs").early_ends((0, 0)))
        assert not list(self.limits(TrainerState(step=240), ends_with="updates").early_ends((1, 0))), "240 each"
        phases = ["phases=[{name: a, until: {updates: 300}}, {name: b, until: {updates: 200}}]"]
        config = load_run("debug", [*phases, "training.max_updates=1000", "schedule={kind: cosine, warmup_updates: 9}"])
        [said] = Limits(config, TrainerState()).early_ends((0, 0))
        assert said.startswith("phases end the run near step 500, and the schedule is made for 1,000")
        assert said.endswith("; training.max_updates=500 brings it to its end with them")

    def test_a_clock_that_cuts_one_is_warned_of_once(self) -> None:
        state = TrainerState(step=10, seconds=59.0)
        limits = self.limits(state)
        assert limits.clock_warning() is None, "too early to tell"
        state.seconds = 61.0
        said = limits.clock_warning()
        assert said is not None
        assert said.startswith("training.max_minutes=10 ends the run near step 98, and the schedule is made for 1,000")
        assert "will be at 91% of its peak then" in said
        assert limits.clock_warning() is None
        assert self.limits(state, ends_with="minutes").clock_warning() is None
        assert self.limits(TrainerState(step=900, seconds=580.0)).clock_warning() is None

    @pytest.mark.parametrize("ends_with", ["epochs", "updates"])
    def test_in_a_run_of_epochs(self, ends_with: str, tmp_path: Path, forked: Forked) -> None:
        """All ranks have the same rate, or they would not stay alike; where it is cut, that is said at the start."""
        place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
        schedule = f"schedule={{kind: cosine, warmup_updates: 2, ends_with: {ends_with}}}"
        limits = ["training.max_updates=1000", "training.max_epochs=2", "evaluation.every_updates=9", "name=epochs"]
        limits += ["stability.hash_every_updates=1", "training.log_every=1", "engine.zero_stage=0"]
        done = forked.trainer(2, "small.yaml", *SETTINGS, schedule, *limits, cwd=place)
        assert done.code == 0, done.err
        rates = [line["lr"] for line in read_metrics(place / "runs" / "epochs")]
        said = "training.max_epochs=2 ends the run near step "
        if ends_with == "epochs":
            assert rates[-1] < 0.02 * max(rates)
            assert said not in done.out
        else:
            assert rates[-1] > 0.98 * max(rates)
            assert done.out.index(said) < done.out.index("\nstep 1 ")
        out_of_step = f"evaluation.every_updates=9 is no multiple of checkpoint.every_updates={SAVED}, so the best step"
        assert done.out.index(out_of_step) < done.out.index("\nstep 1 ")

    @pytest.mark.parametrize("ends_with", ["minutes", "updates"])
    def test_in_a_run(self, ends_with: str, tmp_path: Path, forked: Forked) -> None:
        """Its rate comes down with the clock; where it does not, that is said while there is time to stop it."""
        place = Path(shutil.copytree(small_runs(), tmp_path / "place"))
        schedule = f"schedule={{kind: linear, warmup_updates: 2, ends_with: {ends_with}}}"
        limits = ["training.max_updates=1000000", "training.max_minutes=0.06", "evaluation.every_updates=0"]
        done = forked.zeromt("train", "small.yaml", *SETTINGS, schedule, *limits, "name=clock", cwd=place)
        assert done.code == 0, done.err
        lines = read_metrics(place / "runs" / "clock")
        rates = [line["lr"] for line in lines]
        assert max(rates) == 0.01
        assert "training.max_minutes=0.06 is reached" in done.out
        if ends_with == "minutes":
            assert rates[-1] < 0.1 * max(rates)
            assert "the schedule is made for" not in done.out
        else:
            assert rates[-1] > 0.9 * max(rates)
            assert done.out.count("the schedule is made for 1,000,000") == 1


@pytest.mark.parametrize(
    ("scored", "saved", "keep_best", "said"),
    [
        (300, 300, 1, None),
        (600, 300, 1, None),
        (0, 300, 1, None),
        (2000, 300, 1, None),  # never due
        (300, 200, 0, None),
        (
            300, 200, 1, "evaluation.every_updates=300 is no multiple of checkpoint.every_updates=200, so the best "
            "step may have no checkpoint; set evaluation.every_updates=400 or checkpoint.every_updates=300",
        ),
        (
            100, 250, 1, "evaluation.every_updates=100 is no multiple of checkpoint.every_updates=250, so the best "
            "step may have no checkpoint; set evaluation.every_updates=250 or checkpoint.every_updates=100",
        ),
        (
            100, 0, 1, "evaluation.every_updates=100 with checkpoint.every_updates=0, which saves at the end alone, so "
            "the best step may have no checkpoint; set checkpoint.every_updates=100",
        ),
    ],
)  # fmt: skip
def test_a_best_step_without_a_checkpoint_is_warned_of(
    scored: int, saved: int, keep_best: int, said: str | None
) -> None:
    every = [f"evaluation.every_updates={scored}", f"checkpoint.every_updates={saved}", "training.max_updates=1000"]
    assert unsaved_best(load_run("debug", [*every, f"checkpoint.keep_best={keep_best}"])) == said


def test_a_warm_up_beyond_the_end_is_warned_of() -> None:
    long, short = (load_run("debug", [f"schedule.warmup_updates={n}", "training.max_updates=100"]) for n in (400, 100))
    assert never_warm(short) is None
    assert never_warm(long) == (
        "schedule.warmup_updates=400 is above training.max_updates=100, so the rate ends at 25.0% of optimizer.lr; set "
        "schedule.warmup_updates to 10 or so"
    )
