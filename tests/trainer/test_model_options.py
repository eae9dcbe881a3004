"""Activation checkpointing and the parts that the default model lacks, under ZeRO, against plain PyTorch."""

from pathlib import Path

import pytest

from configs import load_run
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all
from tests.trainer.oracle import PlainRun, plain_run

SETTINGS = (
    "stream.micro_batches=2",
    "stream.source_tokens=256",
    "stream.target_tokens=256",
    "model.feed_forward.dropout=0.1",
    "model.attention.dropout=0.1",
    "optimizer.lr=1e-3",
    "optimizer.weight_decay=0.1",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=4",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
    "training.memory_probe=false",
    "checkpoint.every_updates=0",
)
PRESETS = (
    ("preset=modern", "model.output_bias=true", "model.attention.num_heads=4", "model.attention.num_kv_heads=2"),
    ("preset=notebook_postnorm_es",),
)
# every parameter is sharded, and gathered for each use
SHARED_OUT = (
    "engine.zero_optimization={stage3_max_live_parameters: 0, stage3_max_reuse_distance: 0, "
    "stage3_param_persistence_threshold: 0}"
)


@pytest.fixture(scope="module")
def plain(corpus_en_fr: Corpus) -> list[PlainRun]:
    """By preset."""
    return [plain_run(load_run("debug", [*corpus_en_fr.overrides, *SETTINGS, *preset])) for preset in PRESETS]


@pytest.mark.parametrize("stage", [1, 3])
def test_checkpointed_layers_agree_with_plain_pytorch(
    stage: int, plain: list[PlainRun], corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    common = [*corpus_en_fr.overrides, *SETTINGS, *([SHARED_OUT] if stage == 3 else [])]
    runs = [
        [
            *common,
            *preset,
            f"output={tmp_path}",
            f"name=run{number}",
            f"engine.zero_stage={stage}",
            "model.activation_checkpointing=true",
        ]
        for number, preset in enumerate(PRESETS)
    ]
    forked.ranks(2, train_all, runs, cwd=tmp_path)
    for number, (preset, expected) in enumerate(zip(PRESETS, plain, strict=True)):
        lines = read_metrics(tmp_path / f"run{number}")
        assert [line["step"] for line in lines] == list(range(1, 5))
        for line, loss, norm in zip(lines, expected.losses, expected.norms, strict=True):
            where = f"ZeRO-{stage}, {preset[0]}, step {line['step']}"
            assert line["loss"] == pytest.approx(loss, rel=1e-5), where
            assert line["grad_norm"] == pytest.approx(norm, rel=1e-3), where
