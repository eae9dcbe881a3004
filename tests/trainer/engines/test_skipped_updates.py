"""A gradient that is not finite on one rank is skipped on all, at every stage, and does not advance the rate."""

import json
import math
from pathlib import Path

import pytest

from tests.conftest import Corpus, Start, ranks, read_metrics


@pytest.mark.parametrize(("precision", "rel"), [("fp32", 1e-5), ("bf16", 1e-3)])
def test_nan_on_one_rank_is_skipped_on_all(
    precision: str, rel: float, corpus_en_fr: Corpus, start: Start, tmp_path: Path
) -> None:
    settings = [
        *corpus_en_fr.overrides,
        f"output={tmp_path}",
        "stream.micro_batches=3",
        "schedule.warmup_updates=100",
        "training.max_updates=8",
        "training.log_every=1",
        "training.tensorboard=false",
        "evaluation.max_pairs=2",
        f"engine.precision={precision}",
    ]
    done = start(*ranks(2, "tests.trainer.engines.nan_runs", json.dumps(settings))).finish()
    assert done.code == 0, done.err[-3000:]
    first = None
    for stage in range(4):
        run = tmp_path / f"zero{stage}"
        events = [e for e in read_metrics(run, "event") if e["event"] == "skipped_update"]
        assert [(e["step"], e["epoch"], e["update"]) for e in events] == [(4, 0, 3)]
        lines = read_metrics(run)
        assert events[0]["pairs_digest"] == lines[3]["pairs_digest"]
        assert events[0]["not_finite_losses"] == [1], "the last rank's only lane"
        assert [line["skipped_updates"] for line in lines] == [0, 0, 0, 1, 1, 1, 1, 1]
        rates = [line["lr"] for line in lines]
        assert rates[4] == rates[3], "the rate advanced with an update that was skipped"
        assert rates[5] > rates[4]
        losses = [line["loss"] for line in lines]
        assert losses.pop(3) is None
        assert all(math.isfinite(loss) for loss in losses)
        first = first or losses
        assert losses == pytest.approx(first, rel=rel), stage
