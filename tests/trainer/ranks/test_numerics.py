"""Every ZeRO stage on one and two ranks computes the update that plain PyTorch computes."""

from pathlib import Path

import pytest

from configs import load_run
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import PlainRun, plain_run

UPDATES = 10
# K = 5 micro-batches, three-way tying, clipping and weight decay active, the peak rate from the first update.
SETTINGS = (
    "stream.micro_batches=5",
    "stream.source_tokens=256",
    "stream.target_tokens=256",
    "model.tied_embeddings=three-way",
    "optimizer.lr=3e-3",
    "optimizer.clip_norm=0.3",
    "optimizer.weight_decay=0.1",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    f"training.max_updates={UPDATES}",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=2",
    "checkpoint.every_updates=0",
)
DROPOUTS = (0.0, 0.1)
CASES = [(0, 0.0), (2, 0.0), *((stage, 0.1) for stage in range(4))]
"""Stage and dropout: masks are drawn alike at every stage, or none would agree."""


@pytest.fixture(scope="module")
def expected(corpus_en_fr: Corpus) -> dict[float, PlainRun]:
    found = {}
    for dropout in DROPOUTS:
        config = load_run("debug", [*corpus_en_fr.overrides, *SETTINGS, f"model.dropout={dropout}"])
        found[dropout] = plain_run(config)
    return found


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_agrees_with_plain_pytorch_at_every_stage(
    num_ranks: int,
    corpus_en_fr: Corpus,
    expected: dict[float, PlainRun],
    forked: Forked,
    tmp_path: Path,
) -> None:
    runs = [
        [
            *corpus_en_fr.overrides,
            *SETTINGS,
            f"output={tmp_path}",
            f"name=zero{stage}-{dropout}",
            f"engine.zero_stage={stage}",
            f"model.dropout={dropout}",
        ]
        for stage, dropout in CASES
    ]
    forked.ranks(num_ranks, train_all, runs, cwd=tmp_path)
    for stage, dropout in CASES:
        losses, norms = expected[dropout].losses, expected[dropout].norms
        assert losses[-1] < 0.9 * losses[0]
        assert max(norms) > 0.3, "clipping was never active"
        lines = read_metrics(tmp_path / f"zero{stage}-{dropout}")
        assert [line["step"] for line in lines] == list(range(1, UPDATES + 1))
        for line, loss, norm in zip(lines, losses, norms, strict=True):
            where = f"{num_ranks} ranks, ZeRO-{stage}, dropout {dropout}, step {line['step']}"
            assert line["loss"] == pytest.approx(loss, rel=1e-5), where
            assert line["grad_norm"] == pytest.approx(norm, rel=1e-3), where


def test_dropout_changes_the_loss(expected: dict[float, PlainRun]) -> None:
    without, with_ = expected[0.0].losses, expected[0.1].losses
    assert all(abs(a - b) > 1e-4 for a, b in zip(without, with_, strict=True))
