"""Presets that fit the memory of a small machine, at their full size, on the bundled corpus."""

from pathlib import Path

import pytest
import yaml

from tests.conftest import REPO, Corpus, Start, read_metrics, zeromt

SETTINGS = (
    "stream.micro_batches=1",
    "stream.source_tokens=512",
    "stream.target_tokens=512",
    "stream.on_oversized_pair=drop",  # none of this corpus is; presets allow longer ones
    "optimizer.lr=3e-4",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=16",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
    "checkpoint.every_updates=0",
)
PRESETS = ("vaswani_big", "deep_shallow", "modern", "student_micro", "notebook_postnorm_es", "notebook_learned_pos")
"""Of those that have the same parts, one."""


@pytest.mark.slow  # up to 213 million parameters
@pytest.mark.parametrize("preset", PRESETS)
def test_loss_falls(preset: str, corpus_en_fr: Corpus, start: Start, tmp_path: Path) -> None:
    # the corpus by the preset's own preparation: one has positions for the pairs alone that it keeps
    settings = [*corpus_en_fr.overrides, f"prepare.output={tmp_path / 'prepared'}", "prepare.pairs_per_block=32"]
    settings += [*SETTINGS, f"preset={preset}", f"output={tmp_path}", "name=run"]
    tree = yaml.safe_load((REPO / "configs" / "runs" / "debug.yaml").read_text())
    del tree["model"], tree["prepare"]["max_pieces"]  # both are the preset's alone
    config = tmp_path / "bare.yaml"
    config.write_text(yaml.safe_dump(tree))
    assert start(*zeromt("prepare", str(config), *settings)).finish().code == 0
    done = start(*zeromt("train", str(config), *settings)).finish(900)
    assert done.code == 0, done.err[-3000:]
    losses = [line["loss"] for line in read_metrics(tmp_path / "run")]
    assert len(losses) == 16
    assert sum(losses[-4:]) < 0.95 * sum(losses[:4]), losses
