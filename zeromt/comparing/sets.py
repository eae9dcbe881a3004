"""The held-out sets that runs are compared on: the same text for all, with each run's own tags."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from configs import HeldOutSection, UserError
from configs.components import unknown
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tag_pieces import cut_tag
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, load_sets, tagged, validation_sets
from zeromt.comparing.subjects import Subject


@dataclass(kw_only=True, slots=True, frozen=True)
class SharedSet:
    """A set, in the form in which each run translates it."""

    name: str
    languages: str
    """Source and target: en-fr."""
    role: str
    texts: Sequence[SetText]
    """One per run; they differ only in tags before source lines and in the name."""

    @property
    def sources(self) -> list[str]:
        """Without tags."""
        return [untagged(line) for line in self.texts[0].sources]

    @property
    def references(self) -> Sequence[Sequence[str]]:
        """One or more references, each with as many lines as there are sources."""
        return self.texts[0].references


def shared_sets(
    subjects: Sequence[Subject], named: Sequence[str | HeldOutSection]
) -> tuple[list[SharedSet], list[str], list[dict[str, str]]]:
    """The sets that were asked for, else those that all runs have; notes on those left aside; and `_validated`.

    Args:
        subjects: the runs.
        named: names of sets of any of the runs, or other sets.

    Raises:
        UserError: no run has a set of that name, or another set cannot be read.
    """
    notes: list[str] = []
    own = [_own_sets(subject, notes) for subject in subjects]
    validated = [_validated(subject, sets) for subject, sets in zip(subjects, own, strict=True)]
    if named:
        return [_named(one, subjects, own, notes) for one in named], notes, validated
    shared = []
    for name, text in own[0].items():
        texts = [next((t for t in sets.values() if _key(t) == _key(text)), None) for sets in own]
        having = [t for t in texts if t is not None]
        if len(having) == len(subjects):
            shared.append(_shared(name, having))
    common = {_key(one.texts[0]) for one in shared}
    for subject, sets in zip(subjects, own, strict=True):
        if left := [name for name, text in sets.items() if _key(text) not in common]:
            notes.append(
                f"{subject.label}: {', '.join(left)} not compared, since not every run is evaluated on the same text; "
                f"--set {left[0]} has all of them translate it"
            )
    return shared, notes, validated


def _validated(subject: Subject, sets: Mapping[str, SetText]) -> dict[str, str]:
    """Validation sets of a run by name: a text for each that is equal for equal lines that it is scored on."""
    most = subject.config.evaluation.max_pairs
    validation = {name: text for name, text in sets.items() if text.role == "validation"}
    return {
        name: _key(text) if most is None or most >= len(text.sources) else f"{_key(text)}, {most} pairs"
        for name, text in validation.items()
    }


def _own_sets(subject: Subject, notes: list[str]) -> dict[str, SetText]:
    """The sets that a run is evaluated on, by name; a note tells of each that cannot be read."""
    config = subject.config
    datasets: list[Dataset] = []
    try:
        datasets = [Dataset.load(d.path, config.stream) for d in config.datasets]
    except (UserError, OSError) as error:
        notes.append(f"{subject.label}: its data are not at hand: {error}")
    names = dataset_names(datasets)
    by_name: dict[str, SetText] = {}
    for section in config.evaluation.sets:
        try:
            texts = load_sets([section], config.prepare, names, option="evaluation.sets", tokenizer=subject.tokenizer)
        except (UserError, OSError) as error:
            if datasets or section.prepared is None:
                notes.append(f"{subject.label}: {section.name} cannot be read: {error}")
        else:
            by_name |= {text.name: text for text in texts}
    if not any(section.role == "validation" for section in config.evaluation.sets):
        by_name = {text.name: text for text in validation_sets(names)} | by_name
    return by_name


def _named(
    wanted: str | HeldOutSection,
    subjects: Sequence[Subject],
    own: Sequence[dict[str, SetText]],
    notes: Sequence[str],
) -> SharedSet:
    """A set that was asked for, in the form of every run.

    Raises:
        UserError: there is no set of that name (the notes say which were not read), or it cannot be read.
    """
    if isinstance(wanted, str):
        known = {name: text for sets in reversed(own) for name, text in sets.items()}
        if wanted not in known:
            raise UserError("; ".join([f"--set: {unknown(wanted, known, what='set of the runs')}", *notes]))
        text = known[wanted]
    else:
        config = subjects[0].config
        datasets = [Dataset.load(d.path, config.stream) for d in config.datasets] if wanted.prepared is not None else []
        [text, *others] = load_sets([wanted], config.prepare, dataset_names(datasets), option="--set")
        if others:
            raise UserError(f"--set: {wanted.name} is of several datasets; name files, or a set of the run")
    same = [next((t for t in sets.values() if _key(t) == _key(text)), None) for sets in own]
    texts = [
        replace(text, sources=_for(subject, text)) if theirs is None else theirs
        for subject, theirs in zip(subjects, same, strict=True)
    ]
    return _shared(text.name, texts)


def _for(subject: Subject, text: SetText) -> Sequence[str]:
    """A set's source lines with the tags that a run knows; its own comes before lines that are left without one."""
    assert subject.tokenizer is not None
    known = [line if subject.tokenizer.cut_tag(line)[0] is not None else untagged(line) for line in text.sources]
    return tagged(known, text.languages[1], subject.config.prepare, subject.tokenizer)


def _shared(name: str, texts: Sequence[SetText]) -> SharedSet:
    return SharedSet(name=name, languages="-".join(texts[0].languages), role=texts[0].role, texts=texts)


def _key(text: SetText) -> str:
    """Equal for sets of the same text."""
    content = [[untagged(line) for line in text.sources], *map(list, text.references)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def untagged(line: str) -> str:
    """A source line without the tag of the target language before it."""
    return cut_tag(line)[1]
