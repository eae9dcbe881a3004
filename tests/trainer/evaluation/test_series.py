"""Scores are compared where they were measured alike, by a hash of each figure; else scoring starts anew."""

import json
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from configs import load_run
from configs.components import ScoredText, make
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.scores import enter_series, measured
from trainer.evaluation.sets import HeldOutSet
from trainer.metrics.scoring import Scorer


def scorer(tokenizer: str = "13a", metrics: Sequence[str] = ("bleu", "chrf", "ter")) -> Scorer:
    text = ScoredText(target_language="fr", tokenizer=tokenizer)
    return Scorer([make("metric", kind) for kind in metrics], text)


SCORER = scorer()


def held_out(name: str = "a", languages: tuple[str, str] = ("en", "fr"), **changes: Any) -> HeldOutSet:
    fields: dict[str, Any] = {"sources": ["x", "y"], "references": [["u", "v"]], "scorer": SCORER} | changes
    return HeldOutSet(name=name, languages=languages, **fields)


def hash_of(sets: Sequence[HeldOutSet], *overrides: str, tokenizer: str = "t", figure: str = "bleu") -> str:
    return measured(load_run("debug", list(overrides)), sets, tokenizer)[figure]


@pytest.mark.parametrize(
    ("sets", "overrides"),
    [
        ([held_out("moved")], []),
        ([held_out(languages=("eng", "fra_Latn"))], []),
        ([held_out()], ["evaluation.search.batch_tokens=17", "evaluation.every_updates=7"]),
        ([held_out()], ["evaluation.metrics=[ter, bleu]"]),
        ([held_out()], ["evaluation.max_pairs=2", "training.max_updates=7", "engine.precision=bf16"]),
    ],
)
def test_what_changes_no_score(sets: list[HeldOutSet], overrides: list[str]) -> None:
    assert hash_of(sets, *overrides) == hash_of([held_out()])


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
        ([held_out()], ["training.ema_decay=0.9"]),
    ],
)
def test_what_changes_them(sets: list[HeldOutSet], overrides: list[str]) -> None:
    assert hash_of(sets, *overrides) != hash_of([held_out()])


def test_several_sets_in_any_order_and_another_tokenizer() -> None:
    both = [held_out(), held_out("b", references=[["u", "w"]])]
    assert hash_of(both) == hash_of(both[::-1])
    assert hash_of(both) != hash_of(both, tokenizer="u")


def test_references_need_no_search() -> None:
    sets = [held_out()]
    changed = hash_of(sets, "evaluation.search.beam=2", figure="nll")
    assert changed == hash_of(sets, figure="nll") != hash_of(sets, figure="bleu")


def test_scores_that_were_measured_otherwise_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.evaluation.scores.tokenizer_of", lambda _: SimpleNamespace(fingerprint="t"))
    state, metrics = TrainerState(), "evaluation.metrics=[bleu, ter]"
    assert enter_series(load_run("debug", [metrics]), [], [held_out()], state) is None
    state.note(5, {"bleu": 1.0, "ter": 70.0, "nll": 2.0, "other": 3.0})
    state.step = 9
    assert enter_series(load_run("debug", [metrics]), [], [held_out()], state) is None
    event = enter_series(load_run("debug", [metrics, "checkpoint.best_by=ter"]), [], [held_out()], state)
    assert event is not None
    assert event["reason"].endswith("not by the scores so far: 1 scores are known")
    state.scores["ter"] |= {9: 60.0, 12: math.nan}
    state = TrainerState.from_json(json.loads(json.dumps(state.to_json())))
    assert state.signed_scores() == {5: -70.0, 9: -60.0}
    anew = enter_series(load_run("debug", [metrics, "evaluation.search.beam=2"]), [], [held_out()], state)
    assert anew is not None
    assert anew["reason"].endswith("it begins without scores")
    assert (state.scores["bleu"], state.scores["nll"], state.series_start) == ({}, {5: 2.0}, 9)
