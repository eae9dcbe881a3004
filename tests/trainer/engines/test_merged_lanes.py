"""Kernels for GPUs within the trainer, by their plain implementations: padding left out, a rank's lanes at once."""

import math
from pathlib import Path

import pytest

from configs import load_run
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import plain_run

SETTINGS = (
    "stream.micro_batches=5",
    "stream.source_tokens=160",
    "stream.target_tokens=160",
    "optimizer.lr=1e-3",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=3",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
    "training.memory_probe=false",
    "checkpoint.every_updates=0",
    "engine.kernels=cuda",
    "model.dropout=0",
)
DROPOUT = ("model.dropout=0.2", "model.feed_forward.dropout=0.1")
OF_WEIGHTS = ("model.attention.dropout=0.5",)
ALONE, MERGED = ("engine.merge_lanes=1",), ("engine.merge_lanes=3", "training.memory_probe=true")
RUNS = {
    "padded": (*DROPOUT, *ALONE, "engine.attention=padded"),
    "packed": (*DROPOUT, *ALONE),
    "merged": (*DROPOUT, *MERGED),
    "sharded": (*DROPOUT, "engine.merge_lanes=2", "engine.zero_stage=3"),
    "weights too, padded": (*DROPOUT, *ALONE, *OF_WEIGHTS, "engine.attention=padded"),
    "weights too, packed": (*DROPOUT, *ALONE, *OF_WEIGHTS),
    "weights too, merged": (*DROPOUT, *MERGED, *OF_WEIGHTS, "engine.attention=short"),
    "without": MERGED,
    "as many as fit": ("engine.merge_lanes=auto",),
}


def test_losses_are_those_of_the_oracle(corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """Of K = 5 on 2 ranks, of which one has a dry lane in every update: 1e-5, by all ways, with dropout among them."""
    common = [*corpus_en_fr.overrides, *SETTINGS]
    runs = [[*common, *more, f"output={tmp_path}", f"name=run{n}"] for n, more in enumerate(RUNS.values())]
    forked.ranks(2, train_all, runs, cwd=tmp_path)
    found = {}
    for number, name in enumerate(RUNS):
        lines = read_metrics(tmp_path / f"run{number}")
        assert [line["step"] for line in lines] == [1, 2, 3]
        found[name] = [(line["loss"], line["grad_norm"]) for line in lines]
    expected = plain_run(load_run("debug", common))
    plain = list(zip(expected.losses, expected.norms, strict=True))
    of_dropout, of_weights = found["merged"], found["weights too, merged"]
    for name, updates in found.items():
        same = plain if name.startswith(("without", "as")) else of_weights if name.startswith("weights") else of_dropout
        for update, other in zip(updates, same, strict=True):
            assert update == (pytest.approx(other[0], rel=1e-5), pytest.approx(other[1], rel=1e-3)), name
    assert all(not math.isclose(one[0], other[0], rel_tol=1e-4) for one, other in zip(plain, of_dropout, strict=True))
    pairs = zip(of_dropout, of_weights, strict=True)
    assert any(not math.isclose(one[0], other[0], rel_tol=1e-4) for one, other in pairs)
