"""Scores belong to a series: what they were measured with. What is best goes by the current one alone."""

import dataclasses
import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs import RunConfig, load_run
from configs.components import ScoredText, make
from launcher.monitoring.progress import read_progress
from tests.forked import Forked
from tests.small import small_runs
from trainer.checkpoint.format import read_checkpoint, write_manifest
from trainer.checkpoint.state import ScoreSeries, TrainerState
from trainer.evaluation.series import current_series, enter
from trainer.evaluation.sets import HeldOutSet
from trainer.metrics.scoring import Scorer
from trainer.runs.layout import MANIFEST, MANIFEST_HASH
from zeromt.averaging.average import choose


def scorer(tokenizer: str = "13a", metrics: Sequence[str] = ("bleu", "chrf", "ter")) -> Scorer:
    text = ScoredText(target_language="fr", tokenizer=tokenizer)
    return Scorer([make("metric", kind) for kind in metrics], text)


SCORER = scorer()


def held_out(name: str = "a", languages: tuple[str, ...] = ("en", "fr"), **changes: Any) -> HeldOutSet:
    fields: dict[str, Any] = {"sources": ["x", "y"], "references": [["u", "v"]], "scorer": SCORER} | changes
    return HeldOutSet(name=name, languages=languages, **fields)


def series_of(sets: Sequence[HeldOutSet], *overrides: str, tokenizer: str = "t") -> str:
    config: RunConfig = load_run("debug", list(overrides))
    return current_series(config, sets, tokenizer).id


def series(*overrides: str) -> ScoreSeries:
    return current_series(load_run("debug", list(overrides)), [held_out()], "t")


@pytest.mark.parametrize(
    ("sets", "overrides"),
    [
        ([held_out("moved")], []),
        ([held_out(languages=("eng", "fra_Latn"))], []),
        ([held_out()], ["evaluation.search.batch_tokens=17", "evaluation.search.seed=3", "evaluation.every_updates=7"]),
        ([held_out()], ["evaluation.search.length_penalty=0.3"]),
        ([held_out()], ["evaluation.metrics=[bleu, ter]"]),
        ([held_out()], ["evaluation.max_pairs=2", "training.max_updates=7", "engine.precision=bf16"]),
    ],
)
def test_what_changes_no_score(sets: list[HeldOutSet], overrides: list[str]) -> None:
    assert series_of(sets, *overrides) == series_of([held_out()])


@pytest.mark.parametrize(
    ("sets", "overrides"),
    [
        ([held_out(references=[["u", "w"]])], []),
        ([held_out(sources=["x", "z"])], []),
        ([held_out(languages=("en", "de"))], []),
        ([held_out(), held_out("b", references=[["u", "w"]])], []),
        ([held_out(scorer=scorer("char"))], []),
        ([held_out()], ["evaluation.search.beam=2"]),
        ([held_out()], ["evaluation.search.max_length_ratio=1.0"]),
        ([held_out()], ["evaluation.search.sampler=truncated"]),
        ([held_out()], ["evaluation.max_pairs=1"]),
        ([held_out()], ["evaluation.metrics=[chrf, bleu]"]),
        ([held_out()], ["evaluation.metrics=[ter]"]),
        ([held_out()], ["training.ema_decay=0.9"]),
    ],
)
def test_what_changes_them(sets: list[HeldOutSet], overrides: list[str]) -> None:
    assert series_of(sets, *overrides) != series_of([held_out()])


def test_several_sets_in_any_order_and_another_tokenizer() -> None:
    both = [held_out(), held_out("b", references=[["u", "w"]])]
    assert series_of(both) == series_of(both[::-1])
    assert series_of(both) != series_of(both, tokenizer="u")


def test_scores_come_back_with_their_series() -> None:
    a, b = (ScoreSeries(id=name, fields={"evaluation.search.beam": name}) for name in "ab")
    state = TrainerState(step=30, scores={10: 5.0, 20: 9.0}, series=a)
    assert enter(state, dataclasses.replace(a)) is None
    said = enter(state, b)
    assert said is not None
    assert "evaluation.search.beam: a -> b" in said
    assert (state.scores, state.series_start) == ({}, 30)
    state.scores[40] = 1.0
    state = TrainerState.from_json(json.loads(json.dumps(state.to_json())))
    assert enter(state, a) is not None
    assert state.scores == {10: 5.0, 20: 9.0}
    assert enter(state, b) is not None
    assert state.scores == {40: 1.0}


def test_another_metric_is_named_with_its_direction() -> None:
    state = TrainerState(step=9, scores={5: 1.0}, series=series("evaluation.metrics=[bleu]"))
    said = enter(state, series("evaluation.metrics=[ter, bleu]"))
    assert said is not None
    assert "better: higher -> lower; metric: bleu -> ter; signature: nrefs:1|" in said
    state.scores |= {9: 70.0, 12: 60.0, 15: math.nan}
    assert state.signed_scores() == {9: -70.0, 12: -60.0}
    assert enter(state, series("evaluation.metrics=[bleu]")) is not None
    assert state.signed_scores() == {5: 1.0}


def with_scores(folder: Path, scores: dict[int, float]) -> None:
    """Give the newest checkpoint of the small run other scores."""
    checkpoint = folder / "checkpoints" / "step-00000010"
    state = json.loads((checkpoint / "state.json").read_text())
    state["trainer"]["scores"] = scores
    content = json.dumps(state).encode()
    (checkpoint / "state.json").write_bytes(content)
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    manifest["files"]["state.json"] |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    for name in (MANIFEST, MANIFEST_HASH):  # a checkpoint's files are written once
        (checkpoint / name).unlink()
    write_manifest(checkpoint, manifest)


@pytest.mark.parametrize(
    ("num_ranks", "change", "is_new"),
    [(1, "evaluation.search.beam=2", True), (2, "evaluation.search.batch_tokens=512", False)],
    ids=["another-beam", "nothing-of-it-on-two-ranks"],
)
def test_what_is_best_of_a_run_that_is_resumed(
    forked: Forked, tmp_path: Path, num_ranks: int, change: str, is_new: bool
) -> None:
    """Its scores are the current series' if nothing has changed, and else nobody's; so is what is kept as the best."""
    kept = Path(shutil.copytree(small_runs(), tmp_path / "kept"))
    run = kept / "runs" / "small"
    with_scores(run, {5: 90.0, 10: 80.0})
    settings = [change, "training.max_updates=20", "checkpoint.keep_last=2", "evaluation.every_updates=5"]
    done = forked.trainer(num_ranks, "small.yaml", *settings, cwd=kept)
    assert done.code == 0, done.err
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    found = read_progress(run, sorted(steps))
    assert found.best_score is not None
    assert found.last_score is not None
    assert found.last_score.step == 20
    assert sorted(steps) == ([15, 20] if is_new else [5, 15, 20])
    assert ("another series of scores" in done.out) == is_new
    scores = TrainerState.from_json(read_checkpoint(run / "checkpoints" / "step-00000020").state()["trainer"]).scores
    assert sorted(scores) == ([15, 20] if is_new else [5, 10, 15, 20])
    assert found.best_score.step == max(scores, key=lambda step: (scores[step], -step))
    [chosen] = choose(run, last=None, best=1)
    assert chosen.manifest["step"] == max(scores, key=lambda step: (scores[step], step))
    assert (chosen.manifest["step"] == 5) != is_new
