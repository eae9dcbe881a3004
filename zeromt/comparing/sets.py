"""The runs that are compared, and the held-out sets that they are compared on: one text, with each run's own tags."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from configs import HeldOutSection, RunConfig, UserError
from configs.components import unknown
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import cut_tag
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, all_sets, load_sets, tagged
from zeromt.translator.engine import Engine


class Subject(NamedTuple):
    """One of the runs."""

    label: str
    """Unique among the runs."""
    path: str
    """As the user gave it."""
    engine: Engine
    """That translates by its checkpoint."""


def subjects_of(paths: Sequence[str], engines: Sequence[Engine]) -> list[Subject]:
    """Runs by what they are called; where two have one name, by their numbers and paths."""
    labels = [Path(path).resolve().name for path in paths]
    if len(set(labels)) < len(labels):
        labels = [f"{number}: {path}" for number, path in enumerate(paths, start=1)]
    return [Subject(*one) for one in zip(labels, paths, engines, strict=True)]


def shared_sets(
    subjects: Sequence[Subject], named: Sequence[str | HeldOutSection]
) -> tuple[list[list[SetText]], list[str]]:
    """The sets that were asked for, else those that all runs have, each in the form of every run; and names of others.

    Args:
        subjects: the runs.
        named: names of sets of any of the runs, or other sets.

    Raises:
        UserError: no run has a set of that name, or a set cannot be read.
    """
    reads_theirs = not named or any(isinstance(one, str) or one.prepared is not None for one in named)
    own = [_own(subject) if reads_theirs else {} for subject in subjects]
    if named:
        chosen = [_named(one, own, subjects[0].engine.config) for one in named]
        left: list[str] = []
    else:
        shared = set[str].intersection(*map(set, own))
        chosen = [text for key, text in own[0].items() if key in shared]
        left = sorted({text.name for sets in own for key, text in sets.items() if key not in shared})
    return [
        [sets.get(_key(text)) or _for(subject, text) for subject, sets in zip(subjects, own, strict=True)]
        for text in chosen
    ], left


def _own(subject: Subject) -> dict[str, SetText]:
    return {_key(text): text for text in all_sets(subject.engine.config, subject.engine.tokenizer)}


def _named(wanted: str | HeldOutSection, own: Sequence[Mapping[str, SetText]], config: RunConfig) -> SetText:
    if isinstance(wanted, str):
        known = {text.name: text for sets in reversed(own) for text in sets.values()}
        if wanted not in known:
            raise UserError(f"--set: {unknown(wanted, known, what='set of the runs')}")
        return known[wanted]
    paths = [] if wanted.prepared is None else [source.path for source in config.datasets]
    datasets = dataset_names([Dataset.load(path, config.stream) for path in paths])
    [text, *others] = load_sets([wanted], config.prepare, datasets, option="--set")
    if others:
        raise UserError(f"--set: {wanted.name} is of several datasets; name files, or a set of the run")
    return text


def _for(subject: Subject, text: SetText) -> SetText:
    """A set with the tags that a run knows; its own comes before lines that are left without one."""
    tokenizer, prepare = subject.engine.tokenizer, subject.engine.config.prepare
    known = [line if tokenizer.cut_tag(line)[0] is not None else untagged(line) for line in text.sources]
    return replace(text, sources=tagged(known, text.languages[1], prepare, tokenizer))


def _key(text: SetText) -> str:
    """Equal for sets of the same text."""
    content = [[untagged(line) for line in text.sources], *map(list, text.references)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def untagged(line: str) -> str:
    """A source line without the tag of the target language before it."""
    return cut_tag(line)[1]
