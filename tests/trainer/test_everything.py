"""A run with everything on is the same after kills, on other numbers of ranks, at other stages of ZeRO."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import contents, read_metrics
from tests.everything import LAST, NAN, everything, place_in, start
from tests.forked import Forked, found_again
from trainer.checkpoint.format import read_checkpoint
from trainer.runs.layout import checkpoint_folder

ALIKE = (
    "step", "pairs_digest", "epoch", "update", "phase", "lr", "pairs", "target_tokens", "total_target_tokens",
    "skipped_updates", "loss_weight/dataset", "token_share/dataset_b", "micro_batches/dataset_b",
)  # fmt: skip
FIGURES = ("loss", "nll", "grad_norm", "loss/dataset", "loss/dataset_b", "loss/b", "loss/own-dataset")


@pytest.fixture(scope="module")
def whole(forked: Forked) -> Path:
    return everything(forked)


def lines(run: Path, kind: str, keys: tuple[str, ...]) -> list[list[Any]]:
    return [[line.get(key) for key in keys] for line in read_metrics(run, kind)]


def figures(run: Path) -> list[float]:
    return [value or 0.0 for kind in ("train", "evaluation") for line in lines(run, kind, FIGURES) for value in line]


def names(run: Path) -> set[str]:
    """Of files; shards are counted by ranks, and TensorBoard's have the time in their names."""
    return {name for name in contents(run) if not name.endswith(".safetensors") and "tfevents" not in name}


def test_killed_and_resumed_on_other_ranks(whole: Path, forked: Forked, tmp_path: Path) -> None:
    """To the bit where it was; elsewhere, losses and weights to rounding, and all else alike."""
    place = place_in(tmp_path / "place")
    run = place / "runs" / "everything"
    assert -9 in start(forked, place, nan_at=NAN, killed_at=8)
    assert -9 in start(forked, place, "stream.workers=1", killed_at=8)
    same = lines(run, "train", FIGURES)
    assert len(same) > 8, "more than the first start has made"
    assert same == lines(whole, "train", FIGURES)[: len(same)]
    assert start(forked, place, "engine.zero_stage=3", "stream.workers=2", ranks=1, killed_at=6) == [-9]
    assert start(forked, place, "engine.zero_stage=0", ranks=3) == [0, 0, 0]

    assert [line["step"] for line in read_metrics(run)] == list(range(1, LAST + 1))
    for kind in ("train", "evaluation"):
        assert lines(run, kind, ALIKE) == lines(whole, kind, ALIKE)
    assert figures(run) == pytest.approx(figures(whole), rel=1e-5)
    scores = [lines(one, "score", ("step", "length")) for one in (run, whole)]
    assert all(score in scores[1] for score in scores[0]), "a kill loses what was being computed"
    assert scores[0][-1] == scores[1][-1], "and the last start waits for its own"
    for step, phase in ((NAN, "both"), (8, "one"), (18, "flat"), (19, "last")):
        assert f", phase {phase}" in found_again(forked, run, step, place)
    ended = [{line["step"] for line in read_metrics(one, "event") if line["event"] == "phase"} for one in (run, whole)]
    assert ended[0] == ended[1]
    assert names(run) == names(whole)
    assert contents(run / "eval") == contents(whole / "eval")
    ends = [read_checkpoint(checkpoint_folder(one, LAST)) for one in (run, whole)]
    assert ends[0].state()["stream"]["epoch"] == ends[1].state()["stream"]["epoch"]
    for kind in ("model", "optimizer", "ema"):
        ours, theirs = (dict(end.stored(kind)) for end in ends)
        assert ours.keys() == theirs.keys()
        assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-5, kind
