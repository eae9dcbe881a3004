"""A checkpoint of any number of ranks and ZeRO stage goes on at any other: all 256 pairs of places."""

import itertools
import random
import shutil
from pathlib import Path

import pytest

from tests.conftest import Corpus, read_metrics
from tests.forked import Forked
from tests.trainer.many_runs import train_all

SIZES, STAGES = (1, 2, 3, 4), (0, 1, 2, 3)
UPDATES = 20
"""Before a checkpoint, and after it."""
SETTINGS = (
    "stream.micro_batches=4", "stream.source_tokens=192", "stream.target_tokens=192", "model.d_model=16",
    "model.feed_forward.d_ff=32", "optimizer.weight_decay=0.1", "schedule.warmup_updates=10",
    f"training.max_updates={2 * UPDATES}", "training.log_every=1", "training.tensorboard=false",
    "evaluation.every_updates=0", "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
)  # fmt: skip
Losses = dict[int, tuple[float, int]]


def losses(run: Path) -> Losses:
    return {line["step"]: (line["loss"], line["pairs_digest"]) for line in read_metrics(run)}


def deviation(ours: Losses, theirs: Losses, first: int) -> float:
    """Largest relative difference of a loss; infinite where pairs or steps are others."""
    steps = range(first, first + UPDATES)
    if any(step not in ours or ours[step][1] != theirs[step][1] for step in steps):
        return float("inf")
    return max(abs(ours[step][0] / theirs[step][0] - 1) for step in steps)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_any_place_goes_on_at_others(precision: str, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """From each to each; bf16 to one, within what undisturbed runs differ by over as many updates from their start."""
    dice, places = random.Random(15), list(itertools.product(SIZES, STAGES))
    common = [*corpus_en_fr.overrides, *SETTINGS, f"output={tmp_path}", f"engine.precision={precision}"]
    for size in SIZES:
        each = [[f"name={size}-{stage}", f"engine.zero_stage={stage}"] for stage in STAGES]
        runs = [[*common, *one, f"checkpoint.every_updates={UPDATES}"] for one in each]
        forked.ranks(size, train_all, runs, cwd=tmp_path, seconds=1800)
    whole = {place: losses(tmp_path / f"{place[0]}-{place[1]}") for place in places}
    pairs = [(source, target) for source in places for target in dice.sample(places, 16 if precision == "fp32" else 1)]
    names = {pair: f"from-{pair[0][0]}-{pair[0][1]}-to-{pair[1][0]}-{pair[1][1]}" for pair in pairs}
    kept = f"checkpoints/step-{UPDATES:08d}"
    for size in SIZES:
        runs = []
        for (source, target), name in names.items():
            if target[0] != size:
                continue
            shutil.copytree(tmp_path / f"{source[0]}-{source[1]}" / kept, tmp_path / name / kept)
            is_offloaded = target[1] > 0 and dice.random() < 0.3
            place = [f"engine.zero_stage={target[1]}", f"engine.offload_optimizer={str(is_offloaded).lower()}"]
            runs.append([*common, f"name={name}", *place])
        forked.ranks(size, train_all, runs, cwd=tmp_path, seconds=1800)
    spread = max(deviation(a, b, 1) for a, b in itertools.combinations(whole.values(), 2))
    allowed = 1e-5 if precision == "fp32" else spread
    assert 0 < allowed < 0.1
    for (source, _), name in names.items():
        resumed = losses(tmp_path / name)
        assert min(resumed) == UPDATES + 1, "it did not begin anew"
        assert deviation(resumed, whole[source], UPDATES + 1) <= allowed, name
