"""Rates and validation losses that are not finite: the former are refused at their update, the latter do not finish."""

import dataclasses
import math
from pathlib import Path

import pytest

from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.engines import Engine
from trainer.evaluation.scores import Evaluation
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


@pytest.mark.parametrize(
    ("value", "said"),
    [("-0.5", "is -0.0015"), ("x", "cannot be computed: ValueError: could not")],
)
def test_a_schedule_that_gives_no_rate_is_refused(
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


def spoil(built: Trainer, _: World) -> None:
    """The validation loss is NaN from step 4 on."""
    evaluate = built.evaluator.evaluate

    def spoiled(engine: Engine, step: int) -> Evaluation | None:
        evaluation = evaluate(engine, step)
        return evaluation if evaluation is None or step < 4 else dataclasses.replace(evaluation, loss=math.nan)

    built.evaluator.evaluate = spoiled  # type: ignore[method-assign]


def ends(world: World, settings: list[str]) -> list[str]:
    """How a run ends, and how it does at the next start."""
    endings = []
    for disturb in (spoil, None):
        try:
            train_all(world, [settings], disturb)
            endings.append("finished")
        except TrainingError as error:
            endings.append(str(error))
    return endings


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
