"""Wrecked weights are not saved, push out no good checkpoint, and a rewind or a start passes over those that were."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from model import ObjectiveOutput
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.checkpoint.format import read_whole
from trainer.engines.batches import DeviceBatch
from trainer.loop import Trainer
from trainer.ranks.distributed import World
from trainer.runs.failure import TrainingError
from trainer.runs.layout import list_steps, step_of

BANG = '''
from configs.components import Schedule, component


@component("schedule", "one_bang")
class OneBang(Schedule):
    """Constant, but for one update."""

    def factor(self, update, last):
        return 1e30 if update == 13 else 1.0
'''
QUIET = [
    "engine.precision=fp32", "training.log_every=1", "training.tensorboard=false", "evaluation.every_updates=0",
    "evaluation.max_pairs=2", "checkpoint.keep_last=2", "checkpoint.keep_best=0",
    "stability.spike_score=0",
]  # fmt: skip
IN_A_ROW = 5
SETTINGS = [
    "schedule.kind=one_bang", "schedule.warmup_updates=0", f"training.max_skipped_in_a_row={IN_A_ROW}",
    "stability.max_rewinds=1", *QUIET,
]  # fmt: skip


def steps(folder: Path) -> list[int | None]:
    return [step_of(path) for path in list_steps(folder / "checkpoints")]


def test_good_checkpoints_stand_and_are_gone_on_from(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """Update 13 wrecks the weights, and those after it are skipped: no more is saved, and the run rewinds once.

    It saves after update 13 itself, when nobody knows yet that those weights are wrecked: both the rewind and a later
    start pass over that checkpoint.
    """
    (tmp_path / "bang.py").write_text(BANG)
    run, save = tmp_path / "runs" / "a", "checkpoint.every_updates=13"
    common = [*corpus_en_fr.overrides, f"output={run.parent}", "name=a", "--plugins", "bang.py"]
    early = forked.trainer(1, "debug", *common, *SETTINGS, "training.max_updates=6", save, cwd=tmp_path)
    assert early.code == 0, early.err
    done = forked.trainer(1, "debug", *common, *SETTINGS, "training.max_updates=60", save, cwd=tmp_path)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert f"{IN_A_ROW} updates in a row had a gradient that is not finite" in done.err
    assert steps(run) == [13, 6]
    [rewound] = [e for e in read_metrics(run, "event") if e["event"] == "rewind"]
    assert rewound["step"] == 6, "the newest that can be trained on"
    healthy = ["schedule.kind=constant", *SETTINGS[1:], "training.max_updates=16", "checkpoint.every_updates=0"]
    again = forked.trainer(1, "debug", *common, *healthy, cwd=tmp_path)
    assert again.code == 0, again.err
    assert math.isfinite(read_metrics(run)[-1]["loss"])
    whole = read_whole(run / "checkpoints" / "step-00000016")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in whole.stored("model").values())


def spoil(built: Trainer, world: World, gradients: tuple[int, ...], losses: tuple[int, ...], weights: int) -> None:
    """Let gradients and losses of some updates be NaN, and from one update on a weight on the last rank alone."""
    engine, state = built.run.engine, built.run.state
    accumulate, parts = engine.accumulate, engine.own_weights

    def spoiled(batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        factor = math.nan if state.step + 1 in (*gradients, *losses) else 1.0
        out = accumulate(batch, scale=scale * factor, is_last=is_last)
        return ObjectiveOutput(out.loss_sum * factor, out.nll_sum * factor) if state.step + 1 in losses else out

    def spoiled_weights() -> Iterator[tuple[str, int, torch.Tensor]]:
        is_hit = world.rank == world.size - 1 and state.step >= weights
        return ((name, first, part / 0 if is_hit else part) for name, first, part in parts())

    engine.accumulate = spoiled  # type: ignore[method-assign]
    engine.own_weights = spoiled_weights  # type: ignore[method-assign]


def spoiled(
    world: World, settings: list[str], gradients: tuple[int, ...], losses: tuple[int, ...] = (), weights: int = 99
) -> str:
    """How a disturbed run ends."""
    try:
        train_all(world, [settings], partial(spoil, gradients=gradients, losses=losses, weights=weights))
    except TrainingError as error:
        return str(error)
    return "finished"


@pytest.fixture
def train(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> Callable[..., str]:
    """A run of two ranks, disturbed, of eight updates."""

    def run(saves: int, *spoil: Any, updates: int = 8) -> str:
        settings = [*corpus_en_fr.overrides, f"output={tmp_path}", "name=a", *QUIET]
        settings += [f"training.max_updates={updates}", f"checkpoint.every_updates={saves}"]
        ends = forked.ranks(2, spoiled, settings, *spoil, cwd=tmp_path)
        assert len(set(ends)) == 1
        return ends[0]

    return run


def test_a_skipped_update_alone_forbids_no_save_and_pushes_out_nothing(
    train: Callable[..., str], tmp_path: Path
) -> None:
    """As in fp16's search for its scale; that the weights are good is known only when an update is applied again."""
    assert train(1, (5, 6, 7, 8)) == "finished"
    assert steps(tmp_path / "a") == [8, 7, 6, 5, 4, 3]


def test_a_save_that_was_left_out_is_made_up_for(train: Callable[..., str], tmp_path: Path) -> None:
    assert train(5, (), (5, 6)) == "finished"
    assert steps(tmp_path / "a") == [8, 7]


def test_a_weight_that_is_not_finite_on_one_rank_is_saved_by_none(train: Callable[..., str], tmp_path: Path) -> None:
    said = train(1, (), (), 5)
    assert said == "step 8: a weight is not finite at the end of the run; the checkpoint of step 4 stands"
    assert steps(tmp_path / "a") == [4, 3]


def test_a_last_loss_that_is_not_finite_is_saved_with_good_weights_and_is_no_finish(
    train: Callable[..., str], tmp_path: Path
) -> None:
    """The checkpoint says so: the next start has not finished either, and goes on from there if it is to."""
    why = "step 8: the loss of its update is nan"
    assert train(7, (), (8,)) == f"{why} at the end of the run; the checkpoint of step 8 stands"
    assert steps(tmp_path / "a") == [8, 7]
    assert train(7, ()) == why
    assert train(7, (), updates=9) == "finished"
    assert steps(tmp_path / "a") == [9, 8]
