"""Copies of held-out sets under modifiers of text."""

import pytest

from configs import EvaluationSection, HeldOutSection
from configs.components import make
from trainer.evaluation.held_out import perturbed
from trainer.evaluation.sets import SetText

TEXT = SetText(
    name="valid",
    languages=("en", "fr"),
    sources=[">>fra<< A dog runs.", "Two cats sleep here."],
    references=[["Un chien court.", "Deux chats dorment ici."], ["Le chien court.", "Deux chats y dorment."]],
)


def test_every_pair_is_changed_and_tags_stay() -> None:
    modifiers = [make("modifier", kind, probability=0.0) for kind in ("upper_case", "typos", "noise", "typos")]
    upper, typos, noise, again = perturbed([TEXT], modifiers)
    names = [one.name for one in (upper, typos, noise, again)]
    assert names == ["valid-upper_case", "valid-typos", "valid-noise", "valid-typos-2"]
    assert {one.role for one in (upper, typos, noise, again)} == {"test"}
    assert upper.sources == [">>fra<< A DOG RUNS.", "TWO CATS SLEEP HERE."]
    assert upper.references == [[line.upper() for line in lines] for lines in TEXT.references]
    assert typos.references == TEXT.references
    assert all(ours != theirs for ours, theirs in zip(typos.sources, TEXT.sources, strict=True))
    assert typos.sources != again.sources
    assert noise.sources[1] == noise.references[0][1] == noise.references[1][1]
    assert noise.sources[0] == f">>fra<< {noise.references[0][0]}"
    assert perturbed([TEXT], modifiers) == [upper, typos, noise, again], "alike in every run"


@pytest.mark.parametrize("kind", ["merge", "bpe_dropout"])
def test_what_changes_no_text_by_itself_is_refused(kind: str) -> None:
    section = EvaluationSection(sets=[HeldOutSection(name="a", prepared="valid")], perturb=[make("modifier", kind)])
    assert list(section.problems()) == [f"perturb.0: {kind} is not a modifier of text; use one that is, such as typos"]


def test_datasets_are_refused() -> None:
    [problem] = EvaluationSection(perturb=[make("modifier", "typos", datasets=["a"])]).problems()
    assert problem == "perturb.0.datasets: a; every validation set has a copy, so leave datasets out"
