"""The text of held-out sets: from files, from sacreBLEU's sets, or from prepared datasets."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from configs import CorpusFiles, HeldOutSection, PrepareSection, RunConfig, UserError
from configs.components import unknown
from configs.languages import same_language
from data_pipeline.preparation.raw.corpus import read_whole
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.datasets import dataset_names
from trainer.inference.translation.languages import LanguageTags
from trainer.metrics.scoring import Scorer

FETCH_SECONDS = 60.0
"""Seconds of silence after which a download of sacreBLEU's sets is given up."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SetText:
    """A held-out set."""

    name: str
    languages: tuple[str, str]
    """Languages of source and target, by any of their codes."""
    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    """One or more references, each with as many lines as there are sources."""
    role: Literal["validation", "test"] = "validation"
    has_tags_of_both_sides: bool = True
    """Whether the data have them, where the run does."""


@dataclass(kw_only=True, slots=True, frozen=True)
class HeldOutSet(SetText):
    """A held-out set with its scorer. The loss is computed on the first reference."""

    scorer: Scorer
    tags: LanguageTags | None = None


def load_sets(
    sections: Sequence[HeldOutSection],
    prepare: PrepareSection,
    datasets: Mapping[str, Dataset],
    *,
    option: str,
    tokenizer: Tokenizer | None = None,
) -> list[SetText]:
    """The text of sets, in order; a prepared one is read from every dataset that has it.

    Args:
        sections: of the sets.
        prepare: the run's section; its languages are the default for sets that name none.
        datasets: by name.
        option: the name of the sets in errors: `evaluation.sets`.
        tokenizer: the run's, for lines without a tag; see `tagged`. None: they stay as they are.

    Raises:
        UserError: a file or a set is missing or corrupt, or two sets would have the same name.
    """
    texts: list[SetText] = []
    for number, section in enumerate(sections):
        place = f"{option}.{number}"
        if section.prepared is not None:
            having = {name: d for name, d in datasets.items() if section.prepared in d.index.held_out}
            if not having:
                raise UserError(
                    f"{place}.prepared: no dataset has a {section.prepared} set; prepare with one, or name files"
                )
            for name, dataset in having.items():
                called = section.name if len(having) == 1 else f"{section.name}-{name}"
                texts.append(prepared_set(called, dataset, section.prepared, role=section.role))
            continue
        languages = (
            section.source_language or prepare.source_language,
            section.target_language or prepare.target_language,
        )
        if section.sacrebleu is not None:
            sources, references = _sacrebleu_set(section.sacrebleu, languages, f"{place}.sacrebleu")
        else:
            assert section.source is not None
            sources, references = read_set(section.source, section.references, place=f"{place}.source")
        if section.tag is not None:
            sources = [f"{section.tag} {line}" for line in sources]
        elif tokenizer is not None:
            sources = tagged(sources, languages[1], prepare, tokenizer)
        texts.append(
            SetText(name=section.name, languages=languages, sources=sources, references=references, role=section.role)
        )
    check_names(texts, option)
    return texts


def tagged(sources: Sequence[str], language: str, prepare: PrepareSection, tokenizer: Tokenizer) -> list[str]:
    """Source lines as a run was trained on them: `prepare.target_tag` comes before each that begins with no tag.

    Lines stay as they are if they are to be translated to another language than `prepare.target_language`.

    Args:
        sources: of a set that the run did not prepare.
        language: of its references.
        prepare: the run's section.
        tokenizer: the run's.
    """
    tag = prepare.target_tag
    if tag is None or not same_language(language, [prepare.target_language]):
        return list(sources)
    return [f"{tag} {line}" if tokenizer.begins_without_tag(line) else line for line in sources]


def check_names(texts: Sequence[SetText], option: str) -> None:
    """Refuse two sets of the same name.

    Raises:
        UserError: naming it.
    """
    names = [one.name for one in texts]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UserError(f"{option}: two sets are called {name}; rename one of them")


def prepared_set(
    name: str, dataset: Dataset, split: str, *, role: Literal["validation", "test"] = "validation"
) -> SetText:
    """A held-out set of a prepared dataset.

    Raises:
        UserError: it has none.
    """
    sources, references = dataset.held_out(split)
    return SetText(
        name=name,
        languages=(dataset.source_language, dataset.target_language),
        sources=sources,
        references=[references],
        role=role,
        has_tags_of_both_sides=dataset.tag_both_sides,
    )


def validation_sets(datasets: Mapping[str, Dataset]) -> list[SetText]:
    """The prepared validation sets of the datasets that have one, under the names of these."""
    return [prepared_set(name, one, "valid") for name, one in datasets.items() if "valid" in one.index.held_out]


def all_sets(config: RunConfig, tokenizer: Tokenizer | None = None) -> list[SetText]:
    """All sets of a run: its own, the validation sets that it is evaluated on, and its data's test sets.

    Args:
        config: the run's.
        tokenizer: the run's; see `load_sets`.

    Raises:
        UserError: one cannot be read.
    """
    sections = config.evaluation.sets
    try:
        names = dataset_names([Dataset.load(d.path, config.stream) for d in config.datasets])
    except UserError:
        if not sections or any(section.prepared is not None for section in sections):
            raise
        names = {}  # its own sets are files
    texts = load_sets(sections, config.prepare, names, option="evaluation.sets", tokenizer=tokenizer)
    if not any(text.role == "validation" for text in texts):
        texts = [*validation_sets(names), *texts]
    is_listed = any(section.prepared == "test" for section in sections)
    if not is_listed and any("test" in dataset.index.held_out for dataset in names.values()):
        test = HeldOutSection(name="test", role="test", prepared="test")
        texts += load_sets([test], config.prepare, names, option="prepare.test", tokenizer=tokenizer)
    check_names(texts, "evaluation.sets")
    return texts


def read_set(source: str, references: Sequence[str], *, place: str) -> tuple[list[str], list[list[str]]]:
    """The lines of a source and of its references.

    Args:
        source: a file.
        references: files.
        place: the name of the source in errors.

    Raises:
        UserError: they cannot be read, differ in length or are empty.
    """
    pairs = [read_whole(CorpusFiles(source=[source], target=[reference]), ".") for reference in references]
    sources, texts = pairs[0][0], [lines for _, lines in pairs]
    if not sources:
        raise UserError(f"{place}: {source!r} is empty; it must have at least one line")
    return sources, texts


def _sacrebleu_set(name: str, languages: tuple[str, str], place: str) -> tuple[list[str], list[list[str]]]:
    """One of sacreBLEU's sets; sacreBLEU downloads it if it is not in its cache.

    Raises:
        UserError: there is no such set or language pair, or it is not available.
    """
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        raise UserError(f"{place}: {unknown(name, DATASETS, what='set of sacreBLEU')}")
    dataset: Any = DATASETS[name]
    pairs = {pair: tuple(pair.split("-")) for pair in dataset.langpairs}
    pair = next(
        (
            pair
            for pair, sides in pairs.items()
            if all(same_language(a, [b]) for a, b in zip(languages, sides, strict=True))
        ),
        None,
    )
    if pair is None:
        raise UserError(f"{place}: {name} has no {'-'.join(languages)}; it has {', '.join(pairs)}")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(FETCH_SECONDS)
    try:
        sources = list(dataset.source(pair))
        lines = list(dataset.references(pair))
    except (Exception, SystemExit) as error:  # sacreBLEU raises all kinds of errors, and even exits
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{place}: {name} of {pair} is not in sacreBLEU's cache and cannot be fetched: {said}; where there is a "
            f"network, `sacrebleu -t {name} -l {pair} --echo src` fills it (~/.sacrebleu, or $SACREBLEU)"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
    references = [[line.strip() for line in column] for column in zip(*lines, strict=True)]
    if not sources or any(len(column) != len(sources) for column in references):
        raise UserError(f"{place}: {name} of {pair} is broken in sacreBLEU's cache; delete it there")
    return sources, references
