"""A run of 100 updates that was resumed twice, each time on another number of ranks."""

from pathlib import Path

import pytest

from tests.conftest import Corpus
from tests.forked import Forked
from tests.once import once

SETTINGS = (
    "stream.micro_batches=2",
    "stream.source_tokens=64",
    "stream.target_tokens=64",
    "stream.on_oversized_pair=drop",
    "model.d_model=16",
    "model.feed_forward.d_ff=16",
    "model.dropout=0",
    "optimizer.lr=3e-3",
    "engine.zero_stage=1",
    "training.log_every=1",
    "training.record_pairs=true",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search.beam=1",
    "checkpoint.every_updates=11",
    "checkpoint.keep_last=2",
    "checkpoint.keep_best=0",
)
STARTS = ((1, 60), (2, 63), (1, 103))
"""Ranks, and the last update of each start."""


@pytest.fixture(scope="session")
def resumed(corpus_en_fr: Corpus, forked: Forked) -> Path:
    """Not to be written to."""

    def train(root: Path) -> None:
        for ranks, last in STARTS:
            settings = [*corpus_en_fr.overrides, *SETTINGS, f"output={root}", "name=r", f"training.max_updates={last}"]
            done = forked.trainer(ranks, "debug", *settings, cwd=root)
            assert done.code == 0, done.err

    return once("resumed", train) / "r"
