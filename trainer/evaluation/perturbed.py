"""Copies of held-out sets with modified text, to measure what a model loses by the modification."""

import dataclasses
import hashlib
from collections.abc import Sequence

from configs.components import Draws, Modifier, TextModifier
from data_pipeline.tag_pieces import cut_tag
from trainer.evaluation.sets import SetText


def perturbed(texts: Sequence[SetText], modifiers: Sequence[Modifier]) -> list[SetText]:
    """A copy of each set for each modifier, named NAME-KIND; the second of a kind is NAME-KIND-2.

    Every pair is modified, whatever the modifier's probability, and equally in every run: random draws depend on the
    copy's name and the line's number. A tag before a source stays. Each reference is modified together with its source;
    a line whose references would give it different sources, as where only one has the name to be tagged, stays.
    """
    copies = []
    for number, modifier in enumerate(modifiers):
        assert isinstance(modifier, TextModifier)
        before = sum(other.kind == modifier.kind for other in modifiers[:number])
        called = f"{modifier.kind}-{before + 1}" if before else modifier.kind
        copies += [_copy(text, modifier, f"{text.name}-{called}") for text in texts]
    return copies


def _copy(text: SetText, modifier: TextModifier, name: str) -> SetText:
    state = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    sources: list[str] = []
    references: list[list[str]] = [[] for _ in text.references]
    for number, (line, *targets) in enumerate(zip(text.sources, *text.references, strict=True)):
        tag, source = cut_tag(line)
        pairs = [modifier.change(source, target, Draws(state + number)) for target in targets]
        if len({changed for changed, _ in pairs}) > 1:
            pairs = [(source, target) for target in targets]
        sources.append(tag + pairs[0][0])
        for column, (_, target) in zip(references, pairs, strict=True):
            column.append(target)
    return dataclasses.replace(text, name=name, sources=sources, references=references, role="test")
