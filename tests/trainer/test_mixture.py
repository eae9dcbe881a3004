"""A run on a mixture: figures of each dataset, what is printed, and datasets without a validation set."""

import itertools
import re
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import read_metrics
from tests.everything import everything
from tests.forked import Forked

MIXED = 7
"""Updates of the first phase of the run with everything on, which reads both datasets."""
NAMES = ("dataset", "dataset_b")


def test_figures_of_each_dataset(forked: Forked) -> None:
    """They add up to the run's, and TensorBoard has them."""
    run = everything(forked)
    lines = [line for line in read_metrics(run)[:MIXED] if line["loss"] is not None]
    for line in lines:
        assert sum(line[f"micro_batches/{name}"] for name in NAMES) == 2
        assert sum(line[f"token_share/{name}"] for name in NAMES) == pytest.approx(1)
        shares = [(name, line[f"token_share/{name}"]) for name in NAMES if line[f"micro_batches/{name}"]]
        assert all(line[f"loss_weight/{name}"] == {"dataset": 0.5, "dataset_b": 1}[name] for name, _ in shares)
        weights = [share * line[f"loss_weight/{name}"] for name, share in shares]
        assert line["loss_weight"] == pytest.approx(sum(weights))
        whole = sum(line[f"loss/{name}"] * weight for (name, _), weight in zip(shares, weights, strict=True))
        assert line["loss"] == pytest.approx(whole / sum(weights), rel=1e-6)
    board = EventAccumulator(str(run), size_guidance={"scalars": 0})
    board.Reload()
    for key in (f"{figure}/{name}" for figure in ("micro_batches", "token_share") for name in NAMES):
        drawn = {event.step: event.value for event in board.Scalars(f"train/{key}")}
        kept = {line["step"]: line.get(key) for line in lines}
        # what never was has no curve
        expected = dict(itertools.dropwhile(lambda one: one[1] == 0, kept.items()))
        assert {step: drawn[step] for step in expected} == pytest.approx(expected)


def test_without_a_validation_set(place: Path, forked: Forked) -> None:
    none = ["prepare.output=none", "prepare.tokenizer.path=dataset", "prepare.valid={source: [], target: []}"]
    assert forked.zeromt("prepare", "small.yaml", *none, cwd=place).code == 0
    both = ["stream.datasets=[{path: dataset}, {path: none}]", "stream.temperature=5", "name=both"]
    done = forked.trainer(1, "small.yaml", *both, "training.max_updates=2", cwd=place)
    assert done.code == 0, done.err
    assert re.search(r"data +299 pairs of .*dataset \(50\.0%\); 299 pairs of .*none \(50\.0%\)", done.out), done.out
    line = read_metrics(place / "runs" / "both")[-1]
    assert f"dataset {line['token_share/dataset']:.1%}, loss {line['loss/dataset']:.4f}" in done.out
    run = place / "runs" / "none"
    for number, limit in enumerate((3, 5)):  # its training loss alone; it is saved and resumed as every other
        settings = ["stream.datasets=[{path: none}]", f"training.max_updates={limit}", "evaluation.every_updates=2"]
        done = forked.trainer(1, "small.yaml", *settings, "name=none", cwd=place)
        assert done.code == 0, done.err
        assert "no validation set (prepare.valid): this run reports its training loss alone" in done.out
        assert ("resumed from" in done.out) == (number == 1)
    assert [line["step"] for line in read_metrics(run)] == [1, 2, 3, 4, 5]
    assert read_metrics(run, "evaluation") == []
