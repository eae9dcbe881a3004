"""Weights of pairs in the loss: where they come from, and updates that have none. Their loss: test_oracle.py."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from configs import RunConfig, UserError, load_run
from data_pipeline.stream.reader import StreamReader
from tests.conftest import Corpus, read_metrics
from tests.forked import Forked, found_again
from trainer.datasets import open_datasets, open_reader
from trainer.phases import loss_of

SETTINGS = (
    "stream.micro_batches=5",
    "stream.source_tokens=160",
    "stream.target_tokens=160",
    "optimizer.lr=1e-3",
    "schedule.kind=constant",
    "schedule.warmup_updates=0",
    "engine.precision=fp32",
    "training.max_updates=6",
    "training.log_every=1",
    "training.tensorboard=false",
    "evaluation.every_updates=0",
    "evaluation.max_pairs=1",
    "evaluation.search={max_length_ratio: 0.1, max_length_extra: 1}",
    "checkpoint.every_updates=0",
    "model.dropout=0",
)
SEVERAL = "stream.datasets=[{path: A, loss_weight: qe}, {path: B, loss_weight: 0.25}, {path: C}]"
FEW = ("stream.datasets=[{path: A, loss_weight: few}]", "stream.micro_batches=2", "stream.max_rows=4")


def overrides(weighted: Path, corpus: Corpus, name: str, *more: str) -> list[str]:
    own = [one.replace("path: ", f"path: {weighted}/") for one in more]
    return [*corpus.overrides, *SETTINGS, *own, f"name={name}"]


def test_updates_without_weight(weighted: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path) -> None:
    """They are left out, whichever rank has their pairs, and found again."""
    given = overrides(weighted, corpus_en_fr, "few", *FEW, "checkpoint.every_updates=3", f"output={tmp_path}")
    assert forked.trainer(2, "debug", *given, cwd=tmp_path).code == 0
    run = tmp_path / "few"
    lines = read_metrics(run)
    events = [one for one in read_metrics(run, "event") if one["event"] == "left_out"]
    assert events
    assert {one["reason"] for one in events} == {"all of its pairs have weight 0"}
    for line in lines:
        found_again(forked, run, line["step"], tmp_path)
    done = forked.zeromt("batch", str(run), "4", "--loss", cwd=tmp_path)
    assert done.code == 0, done.err
    [said] = [line for line in done.out.splitlines() if line.startswith("# loss")]
    assert "a target token of weight 1 under step-00000003" in said
    assert float(said.split()[2]) == pytest.approx(lines[3]["loss"], rel=1e-5)
    done = forked.zeromt("batch", str(run), "4", "--loss", "--json", cwd=tmp_path)
    assert {json.loads(line)["weight"] for line in done.out.splitlines()} == {0.0, 1.0}


def test_nothing_left_to_train_on_ends_the_run(
    weighted: Path, corpus_en_fr: Corpus, forked: Forked, tmp_path: Path
) -> None:
    """Where every pair that has a weight is too long: no update would ever look at limits or requests to stop."""
    more = ("stream.datasets=[{path: A, loss_weight: long}]", "stream.on_oversized_pair=drop")
    budgets = ("stream.source_tokens=32", "stream.target_tokens=32")
    given = overrides(weighted, corpus_en_fr, "nothing", *more, *budgets, f"output={tmp_path}")
    done = forked.trainer(1, "debug", *given, cwd=tmp_path)
    assert done.code == 2, done.err
    assert "zeromt: error: stream: a whole pass over the data has nothing to train on" in done.err


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("holes", "loss_weight holes of .*A: pair 17 has nan; .*prepare.filters"),
        ("log", r"loss_weight log of .*A: pair \d+ has -.*; allowed is 0 to 1000"),
        ("none", "loss_weight of .*A: every pair has weight 0"),
        ("0", "loss_weight of .*A: every pair has weight 0"),
        ("absent", "A has no score 'absent'"),
        ("-1", "loss_weight"),
        ("1001", "loss_weight"),
        (".nan", "loss_weight"),
    ],
)
def test_refused(weight: str, said: str, weighted: Path, corpus_en_fr: Corpus) -> None:
    given = overrides(weighted, corpus_en_fr, "no", f"stream.datasets=[{{path: A, loss_weight: {weight}}}]")
    with pytest.raises(UserError, match=said):
        reader_of(load_run("debug", given))


def reader_of(config: RunConfig) -> StreamReader:
    return open_reader(config, open_datasets(config), rank=0, world_size=1)


def test_a_loss_that_takes_no_weights(weighted: Path, corpus_en_fr: Corpus) -> None:
    config = load_run("debug", overrides(weighted, corpus_en_fr, "no", SEVERAL))
    assert callable(loss_of(config))
    other = SimpleNamespace(kind="mine", build=lambda: lambda hidden, weight, bias, targets, *, padding_id: None)
    with pytest.raises(UserError, match=r"loss\.kind: mine takes no weights of pairs"):
        loss_of(cast(RunConfig, SimpleNamespace(loss=other, weighs_pairs=True)))
