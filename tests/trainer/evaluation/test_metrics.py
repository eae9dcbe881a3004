"""Metrics are in figures, the log, what is best, and the commands; a sampler draws the same everywhere."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from configs.components import ScoredText, make
from tests.conftest import Call, Refused, read_metrics
from tests.forked import Forked
from tests.small import FILES, small_runs
from trainer.checkpoint.state import TrainerState
from trainer.metrics.scoring import Scorer

MAX_PAIRS = 10
"""That the small run evaluates on."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, forked: Forked) -> Path:
    """Where a run was trained, scored by three metrics of translations that are sampled; best by the first."""
    place = Path(shutil.copytree(small_runs(), tmp_path_factory.mktemp("trained") / "place"))
    settings = [
        "training.max_updates=25", "evaluation.every_updates=5", "checkpoint.every_updates=5", "checkpoint.keep_last=2",
        "optimizer.lr=0.01", "evaluation.search.sampler={kind: truncated, top_k: 3}",
        "evaluation.metrics=[ter, bleu, {kind: chrf, word_order: 2}]",
    ]  # fmt: skip
    done = forked.zeromt("train", "small.yaml", *settings, cwd=place)
    assert done.code == 0, done.err
    (place / "out").write_text(done.out)
    return place


def test_the_best_is_where_it_is_lowest(place: Path) -> None:
    run = place / "runs" / "small"
    state = TrainerState.from_json(json.loads((run / "checkpoints/step-00000025/state.json").read_text())["trainer"])
    scores = {line["step"]: line["ter"] for line in read_metrics(run, "evaluation")[-3:]}
    assert state.best_scores == scores, "those before were of BLEU"
    best = min(scores, key=lambda step: (scores[step], -step))
    assert {path.name for path in (run / "checkpoints").glob("step-*")} == {f"step-{s:08d}" for s in {20, 25, best}}
    assert "what is best goes by ter as it is measured now" in (place / "out").read_text()


def test_evaluate_draws_as_training_did(call: Call, place: Path) -> None:
    """The run's sampler and seed: the translations of its last evaluation, and other ones by another seed."""
    files = ["--source", "corpus/v.en", "--reference", "corpus/v.fr", "-o", "drawn"]
    then = (place / "runs" / "small" / "eval" / "step-00000025.hyp").read_text().splitlines()
    for options, is_same in (([], True), (["--seed", "7"], False), (["--top-k", "2"], False)):
        done = call("evaluate", "runs/small", *files, *options, cwd=place)
        assert done.code == 0, done.err
        assert ((place / "drawn").read_text().splitlines()[:MAX_PAIRS] == then) == is_same, options


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--metrics", "blue"], "--metrics.0.kind: "),
        (["--metrics", "{kind: ter, normalised: true}"], "--metrics.0.normalised: "),
        (["--metrics", "bleu", "bleu"], "--metrics.1.name: "),
        (["--metrics", "{"], "--metrics: 'metrics[0]={'"),
        (["--metrics", "ter", "--tokenizer", "char"], "--tokenizer: 'char'"),
        (["--metrics", "{name: x, command: []}"], "--queued.0.command: x has none"),
    ],
)
def test_what_evaluate_refuses(refused: Refused, options: list[str], named: str) -> None:
    files = ["--source", str(FILES / "corpus" / "v.en"), "--reference", str(FILES / "corpus" / "v.fr")]
    assert refused("evaluate", str(small_runs() / "runs" / "small"), *files, *options).startswith(named)


def test_a_metric_that_fails_has_no_score_and_ends_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer = Scorer([make("metric", "bleu"), make("metric", "ter")], ScoredText(target_language="fr"))

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("no words")

    monkeypatch.setattr(scorer.scorings["bleu"], "corpus_score", fail)
    scores = scorer.score(["a"], ["b c"], [["b c"]])
    assert math.isnan(scores["bleu"].value)
    assert scores["ter"].value == 0.0
    assert caplog.messages == ["evaluation: BLEU has no score: ZeroDivisionError: no words"]
