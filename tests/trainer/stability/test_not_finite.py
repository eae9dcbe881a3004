"""Rates and validation losses that are not finite: the former are refused before update 1, the latter do not finish."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from configs import RunConfig, UserError, load_run
from configs.components import Schedule
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.checkpoint.state import TrainerState
from trainer.engines.protocol import Engine
from trainer.evaluation.outcome import Evaluation
from trainer.limits import MOST_RATES, Limits
from trainer.loop import Trainer
from trainer.ranks.distributed import World
from trainer.runs.failure import TrainingError

ODD = '''
from configs.components import Schedule, component


@component("schedule", "odd")
class Odd(Schedule):
    """One, but for one update."""

    value: str = "1"

    def factor(self, update, last):
        return float(self.value) if update == 7 else 1.0
'''


@dataclasses.dataclass(kw_only=True, frozen=True)
class Asked(Schedule):
    """It notes for which updates it was asked; the rate of one of them is `odd`."""

    asked: list[int] = dataclasses.field(default_factory=list)
    at: int = 0
    odd: float = math.nan

    def factor(self, update: int, last: int) -> float:
        self.asked.append(update)
        return self.odd if update == self.at else 1.0


def asking(most: int, **fields: Any) -> tuple[RunConfig, Asked]:
    config, schedule = (
        load_run("debug", [f"training.max_updates={most}"]),
        Asked(kind="asked", warmup_updates=0, **fields),
    )
    return dataclasses.replace(config, schedule=schedule), schedule


@pytest.mark.parametrize("most", [1, MOST_RATES, 1_000_000])
def test_rates_are_looked_at_at_both_ends_and_not_too_often(most: int) -> None:
    config, schedule = asking(most)
    Limits(config, TrainerState()).check_rates()
    assert (schedule.asked[0], schedule.asked[-1]) == (1, most)
    assert len(schedule.asked) == len(set(schedule.asked)) == min(most, MOST_RATES)
    schedule.asked.clear()
    Limits(config, TrainerState(step=most - 1, skipped_updates=0)).check_rates()
    assert schedule.asked == [most], "those to come"


def test_a_rate_that_nobody_looked_at_is_refused_at_its_update() -> None:
    config, schedule = asking(1_000_000, at=500_005, odd=-1e-9)
    Limits(config, TrainerState()).check_rates()
    assert schedule.at not in schedule.asked
    with pytest.raises(UserError, match=r"schedule: asked: the learning rate of update 500,005 of 1,000,000 is "):
        Limits(config, TrainerState(step=500_004)).rate(0.0, 0)


@pytest.mark.parametrize(
    ("value", "said"),
    [("-0.5", "is -0.0015"), ("x", "cannot be computed: ValueError: could not")],
)
def test_a_schedule_that_gives_no_rate_is_refused_before_update_1(
    value: str, said: str, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    settings = [
        *corpus_en_fr.overrides, f"output={tmp_path}", "name=a", "--plugins", "odd.py", "schedule.kind=odd",
        "schedule.warmup_updates=0", f"schedule.value='{value}'", "training.max_updates=9", "optimizer.lr=0.003",
    ]  # fmt: skip
    done = forked.trainer(1, "debug", *settings, cwd=tmp_path)
    assert done.code == 2, done.err
    assert f"zeromt: error: schedule: odd: the learning rate of update 7 of 9 {said}" in done.err
    assert not (tmp_path / "a" / "metrics.jsonl").exists()


def spoil(built: Trainer, _: World) -> None:
    """The validation loss is NaN from step 4 on."""
    evaluate = built.evaluator.evaluate

    def spoiled(engine: Engine, step: int) -> Evaluation | None:
        found = evaluate(engine, step)
        return found if found is None or step < 4 else dataclasses.replace(found, loss=math.nan)

    built.evaluator.evaluate = spoiled  # type: ignore[method-assign]


def ends(world: World, settings: list[str]) -> list[str]:
    """How a run ends, and how it does at the next start."""
    found = []
    for disturb in (spoil, None):
        try:
            train_all(world, [settings], disturb)
            found.append("finished")
        except TrainingError as error:
            found.append(str(error))
    return found


def test_a_validation_loss_that_is_not_finite_is_an_event_and_no_finish(
    corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    settings = [
        *corpus_en_fr.overrides, f"output={tmp_path}", "name=a", "engine.precision=fp32", "training.tensorboard=false",
        "evaluation.every_updates=2", "evaluation.max_pairs=2", "training.max_updates=6", "checkpoint.every_updates=0",
    ]  # fmt: skip
    first, again = forked.ranks(2, ends, settings, cwd=tmp_path)[0]
    assert first == "step 6: the validation loss is nan at the end of the run; the checkpoint of step 6 stands"
    assert again == "step 6: the validation loss is nan", "nor has it finished at the next start"
    events = [e["step"] for e in read_metrics(tmp_path / "a", "event") if e["event"] == "loss_not_finite"]
    assert events == [4, 6]
