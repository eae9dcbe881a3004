"""A gradient that is not finite on one rank is skipped on all, at every stage, and does not advance the rate."""

import math
from pathlib import Path

import pytest

from model import ObjectiveOutput
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from trainer.build import BuiltRun
from trainer.engines.protocol import DeviceBatch
from trainer.ranks.distributed import World


def poison(built: BuiltRun, world: World) -> None:
    """Let loss and gradient of update 4 be NaN on the last rank alone."""
    engine = built.context.engine
    accumulate, steps = engine.accumulate, [0]

    def poisoned(batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        hit = steps[0] == 3 and world.rank == world.size - 1
        steps[0] += is_last
        factor = float("nan") if hit else 1.0
        out = accumulate(batch, scale=scale * factor, is_last=is_last)
        return ObjectiveOutput(out.loss_sum * factor, out.nll_sum * factor)

    engine.accumulate = poisoned  # type: ignore[method-assign]


@pytest.mark.parametrize(("precision", "stages", "rel"), [("fp32", (0, 1, 2, 3), 1e-5), ("bf16", (0, 3), 1e-3)])
def test_nan_on_one_rank_is_skipped_on_all(
    precision: str, stages: tuple[int, ...], rel: float, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    settings = [
        *corpus_en_fr.overrides,
        f"output={tmp_path}",
        "stream.micro_batches=3",
        "schedule.warmup_updates=100",
        "training.max_updates=6",
        "training.log_every=1",
        "training.tensorboard=false",
        "evaluation.max_pairs=2",
        f"engine.precision={precision}",
    ]
    runs = [[*settings, f"engine.zero_stage={stage}", f"name=zero{stage}"] for stage in stages]
    forked.ranks(2, train_all, runs, poison, cwd=tmp_path)
    first = None
    for stage in stages:
        run = tmp_path / f"zero{stage}"
        events = [e for e in read_metrics(run, "event") if e["event"] == "skipped_update"]
        assert [(e["step"], e["epoch"], e["update"]) for e in events] == [(4, 0, 3)]
        lines = read_metrics(run)
        assert events[0]["pairs_digest"] == lines[3]["pairs_digest"]
        assert events[0]["not_finite_losses"] == [1], "the last rank's only lane"
        assert [line["skipped_updates"] for line in lines] == [0, 0, 0, 1, 1, 1]
        rates = [line["lr"] for line in lines]
        assert rates[4] == rates[3], "the rate advanced with an update that was skipped"
        assert rates[5] > rates[4]
        losses = [line["loss"] for line in lines]
        assert losses.pop(3) is None
        assert all(math.isfinite(loss) for loss in losses)
        first = first or losses
        assert losses == pytest.approx(first, rel=rel), stage
