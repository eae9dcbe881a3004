"""The moving average of the weights is what is judged and shipped. Its values: tests/trainer/test_oracle.py."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from data_pipeline.prepared.dataset import Dataset
from tests.conftest import read_metrics
from tests.everything import LAST, everything, train
from tests.forked import Forked
from tests.trainer.test_oracle import distance, stored
from trainer.inference.loading import load_trained
from zeromt.cli.main import main


def test_it_is_what_is_used(forked: Forked, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = everything(forked)
    average, raw = (stored(run, kind, LAST) for kind in ("ema", "model"))
    assert distance(average, raw) > 1e-3
    for is_raw, expected in ((False, average), (True, raw)):
        assert distance(dict(load_trained(run, raw=is_raw).model.named_parameters()), expected) == 0
        out = tmp_path / f"mean-{is_raw}"
        assert main(["average", str(run), "--last", "1", "-o", str(out), *["--raw-weights"] * is_raw]) == 0
        assert distance(dict(load_trained(out).model.named_parameters()), expected) == 0
    capsys.readouterr()
    assert main(["inspect", str(run / "checkpoints" / f"step-{LAST:08d}")]) == 0
    assert "and their moving average" in capsys.readouterr().out


def test_evaluation_while_training_judges_it(forked: Forked) -> None:
    run = everything(forked)
    line = read_metrics(run, "evaluation")[-1]
    dataset = Dataset.load(run.parents[1] / "dataset")
    texts = [side[:2] for side in dataset.held_out("valid")]
    sources, targets = dataset.tokenizer.encode_source(texts[0]), dataset.tokenizer.encode_target(texts[1])
    losses = {}
    for is_raw in (False, True):
        model = load_trained(run, raw=is_raw).model
        total = torch.tensor(0.0)
        for source, target in zip(sources, targets, strict=True):
            hidden = model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))
            logits = F.linear(hidden, model.output.weight, model.output.bias)[0]
            total += F.cross_entropy(logits, torch.tensor([*target, 2]), label_smoothing=0.1, reduction="sum")
        losses[is_raw] = total.item() / sum(len(t) + 1 for t in targets)
    assert line["loss/own-dataset"] == pytest.approx(losses[False], rel=1e-5)
    assert abs(line["loss/own-dataset"] - losses[True]) > 1e-3


def test_turned_on_and_off_it_says_so(place: Path, forked: Forked) -> None:
    run = place / "runs" / "small"
    off = forked.trainer(1, "small.yaml", "training.max_updates=11", "training.ema_decay=0", cwd=place)
    assert off.code == 0, off.err
    assert "training.ema_decay is 0: the moving average in" in off.out
    assert stored(run, "ema", 11) == {}
    on = forked.trainer(1, "small.yaml", "training.max_updates=12", "training.ema_decay=0.4", cwd=place)
    assert on.code == 0, on.err
    assert "training.ema_decay: the moving average begins from the weights" in on.out
    before, after, average = (stored(run, k, s) for k, s in (("model", 11), ("model", 12), ("ema", 12)))
    assert distance(average, {name: 0.4 * before[name] + 0.6 * after[name] for name in before}) < 1e-6


def test_a_rewind_takes_it_back(place: Path, forked: Forked) -> None:
    """Updates 11 and 12, then NaN in 13: back at 10, three more are made, at a rate that hardly moves the weights."""
    run = place / "runs" / "small"
    training = "training={max_updates: 13, max_skipped_in_a_row: 1, ema_decay: 0.4}"
    assert forked.ranks(1, train, ["small.yaml", training, "optimizer.lr=1e-7"], 3, 0, cwd=place, meet=False) == [0]
    assert [event["step"] for event in read_metrics(run, "event") if event["event"] == "rewind"] == [10]
    before, average, weights = (stored(run, k, s) for k, s in (("ema", 10), ("ema", 13), ("model", 13)))
    assert distance(before, weights) > 1e-3
    expected = {name: 0.4**3 * before[name] + (1 - 0.4**3) * weights[name] for name in before}
    assert distance(average, expected) < 1e-6
