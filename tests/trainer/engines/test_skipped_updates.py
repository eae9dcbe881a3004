"""A gradient that is not finite on one rank is skipped on all, and does not advance the rate, however the run ends.

At every stage: `tests/trainer/engines/test_steps.py`.
"""

import math
from pathlib import Path

import pytest
import torch

from configs import RunConfig, load_run
from model import ObjectiveOutput
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from trainer.build import build
from trainer.checkpoint.format import read_checkpoint
from trainer.engines.batches import DeviceBatch, StepResult
from trainer.ranks.distributed import World
from trainer.runs.layout import checkpoint_folder


class Killed(BaseException):
    """The run ends here, and nobody tidies up."""


def ended_after_a_skip(world: World | None, runs: list[tuple[list[str], str]]) -> None:
    """As a rank: runs whose update 4 is skipped, and what becomes of each then: "" for nothing, or a stop or a kill.

    Args:
        world: None makes one on the pseudo device.
        runs: overrides, and how the run ends first, before it is started again.
    """
    if world is None:
        from tests.device.accelerator import use_pseudo_device

        use_pseudo_device()
        vars(torch.cuda)["get_device_name"] = str
        world = World(timeout_minutes=2)
    for overrides, how in runs:
        for is_first in (True, False):
            end_after_a_skip(world, load_run("debug", overrides), how if is_first else "")
            if not how:
                break


def end_after_a_skip(world: World, config: RunConfig, how: str) -> None:
    if world.is_main:
        Path(config.folder).mkdir(parents=True, exist_ok=True)
    world.barrier()
    built = build(config, world, stop_requested=lambda: how == "stop" and built.run.state.step == 4)
    engine, state = built.run.engine, built.run.state
    accumulate, step = engine.accumulate, engine.step

    def poisoned(batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        if how == "kill before its outcome is read" and state.step == 4:
            raise Killed
        if state.step != 3 or world.rank < world.size - 1:
            return accumulate(batch, scale=scale, is_last=is_last)
        out = accumulate(batch, scale=math.nan, is_last=is_last)
        return ObjectiveOutput(out.loss_sum * math.nan, out.nll_sum * math.nan)

    def killed(lr: float) -> StepResult:
        if how == "kill once it is read" and state.step == 4:
            raise Killed
        return step(lr)

    engine.accumulate, engine.step = poisoned, killed  # type: ignore[method-assign]
    try:
        assert built.fit() == ("stopped" if how == "stop" else "finished")
        assert not how.startswith("kill")
    except Killed:
        pass
    finally:
        built.close()


HOW = ("", "stop", "kill before its outcome is read", "kill once it is read")


@pytest.mark.parametrize(
    ("place", "stage"),
    [
        ("on the CPU", 2),
        pytest.param("on the pseudo device", 1, marks=pytest.mark.slow),
        pytest.param("on the pseudo device", 3, marks=pytest.mark.slow),
    ],
)
def test_nan_on_one_rank_is_skipped_on_all_also_where_the_run_ends_right_after(
    place: str, stage: int, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """Rates, losses, counts, weights, moments and averages, to the bit, though the outcome is read an update late."""
    settings = [
        *corpus_en_fr.overrides, f"output={tmp_path}", "stream.micro_batches=2", "schedule.warmup_updates=100",
        "training.max_updates=9", "training.log_every=1", "training.tensorboard=false", "training.ema_decay=0.9",
        "checkpoint.every_updates=3", "evaluation.every_updates=0", "evaluation.max_pairs=2",
        "engine.precision=bf16",
    ]  # fmt: skip
    runs = [([*settings, f"engine.zero_stage={stage}", f"name=run{number}"], how) for number, how in enumerate(HOW)]
    if place == "on the CPU":
        forked.ranks(2, ended_after_a_skip, runs, cwd=tmp_path, seconds=280)
    else:
        forked.ranks(2, ended_after_a_skip, None, runs, cwd=tmp_path, meet=False, seconds=280)
    keys = ("loss", "lr", "grad_norm", "skipped_updates", "pairs_digest")
    expected, *others = [tmp_path / f"run{number}" for number in range(len(HOW))]
    lines = read_metrics(expected)
    assert [line["skipped_updates"] for line in lines] == [0] * 3 + [1] * 6
    assert lines[2]["lr"] < lines[3]["lr"] == lines[4]["lr"] < lines[5]["lr"], "it advanced with what was skipped"
    assert [line["step"] for line in lines if line["loss"] is None] == [4]
    checkpoint = read_checkpoint(checkpoint_folder(expected, 9))
    for run in (expected, *others):
        [skipped] = [e for e in read_metrics(run, "event") if e["event"] == "skipped_update"]
        assert (skipped["step"], skipped["epoch"], skipped["update"]) == (4, 0, 3)
        assert (skipped["not_finite_losses"], skipped["pairs_digest"]) == ([1], lines[3]["pairs_digest"])
        logged = read_metrics(run)
        assert [[line[key] for key in keys] for line in logged] == [[line[key] for key in keys] for line in lines]
        resumed = read_checkpoint(checkpoint_folder(run, 9))
        for kind in ("model", "optimizer", "ema"):
            theirs = dict(checkpoint.stored(kind))
            for name, tensor in resumed.stored(kind).items():
                assert torch.equal(tensor, theirs.pop(name)), f"{run.name}: {kind}: {name}"
            assert not theirs
