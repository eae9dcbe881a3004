"""Held-out sets: their text from files or prepared datasets, and what a run scores them with."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from configs import CorpusFiles, HeldOutSection, PrepareSection, RunConfig, UserError
from configs.components import ScoredText
from configs.languages import same_language
from data_pipeline.preparation.corpus import read_whole
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.datasets import dataset_names, tokenizer_of
from trainer.inference.translation.languages import LanguageTags, language_tags
from trainer.metrics.scoring import Scorer
from trainer.ranks.distributed import World

log = logging.getLogger(__name__)


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


@dataclass(kw_only=True, slots=True, frozen=True)
class HeldOutSet(SetText):
    """A held-out set with its scorer. The loss is computed on the first reference."""

    scorer: Scorer
    tags: LanguageTags | None = None


def held_out_sets(config: RunConfig, datasets: Sequence[Dataset], world: World) -> list[HeldOutSet]:
    """The sets to evaluate on: `evaluation.sets`, plus the prepared validation sets if none of these is for validation.

    Rank 0 reads files for all ranks.

    Raises:
        UserError: a set or a metric cannot be used, or something needs a validation set and there is none.
    """
    names, tokenizer = dataset_names(datasets), tokenizer_of(datasets)
    texts: list[SetText] = world.on_main(
        lambda: load_sets(config.evaluation.sets, config.prepare, names, tokenizer=tokenizer), list[SetText]
    )
    texts = with_validation(texts, names)
    if not any(text.role == "validation" for text in texts):
        _check_without(config, texts, world)
    sets = []
    for text in texts:
        scored = ScoredText(target_language=text.languages[1], tokenizer=config.evaluation.tokenizer)
        scorer = Scorer(config.evaluation.metrics, scored, num_references=len(text.references))
        tags = None
        if config.prepare.tag_both_sides:
            tags = language_tags(config.prepare, tokenizer, source=text.languages[0], target=text.languages[1])
        fields = {field.name: getattr(text, field.name) for field in dataclasses.fields(text)}
        sets.append(HeldOutSet(**fields, scorer=scorer, tags=tags))
    return sets


def _check_without(config: RunConfig, texts: Sequence[SetText], world: World) -> None:
    """Check that a run without a validation set can work.

    Raises:
        UserError: a setting needs a validation set.
    """
    if texts:
        raise UserError(
            "evaluation.sets: none is for validation, and the data have no validation set; give one "
            "role: validation, or set prepare.valid"
        )
    waits = any(phase.until is not None and phase.until.plateau is not None for phase in config.phases)
    if waits or config.training.early_stopping is not None:
        raise UserError(
            "evaluation.sets: none, and training.early_stopping or until.plateau of phases needs a validation set; "
            "name one by evaluation.sets or prepare.valid"
        )
    if world.is_main:
        log.warning(
            "no validation set (prepare.valid): this run reports its training loss alone; nothing is evaluated, and "
            "checkpoint.keep_best keeps nothing"
        )


def load_sets(
    sections: Sequence[HeldOutSection],
    prepare: PrepareSection,
    datasets: Mapping[str, Dataset],
    *,
    option: str = "evaluation.sets",
    tokenizer: Tokenizer | None = None,
) -> list[SetText]:
    """The text of sets, in order; a prepared one is read from every dataset that has it.

    Args:
        sections: of the sets.
        prepare: the run's section; its languages are the default for sets that name none.
        datasets: by name.
        option: the name of the sets in errors.
        tokenizer: the run's, for lines without a tag; see `tagged`. None: they stay as they are.

    Raises:
        UserError: a file or a set is missing or corrupt, or two sets would have the same name.
    """
    texts: list[SetText] = []
    for number, section in enumerate(sections):
        place, split = f"{option}.{number}", section.prepared
        if split is None:
            texts.append(_set_of_files(section, prepare, place, tokenizer))
            continue
        having = {name: dataset for name, dataset in datasets.items() if split in dataset.index.held_out}
        if not having:
            raise UserError(f"{place}.prepared: no dataset has a {split} set; prepare with one, or name files")
        for name, dataset in having.items():
            called = section.name if len(having) == 1 else f"{section.name}-{name}"
            texts.append(prepared_set(called, dataset, split, role=section.role))
    check_names(texts, option)
    return texts


def _set_of_files(section: HeldOutSection, prepare: PrepareSection, place: str, tokenizer: Tokenizer | None) -> SetText:
    """For the arguments see `load_sets`."""
    languages = (section.source_language or prepare.source_language, section.target_language or prepare.target_language)
    sources, references = read_set(str(section.source), section.references, place=f"{place}.source")
    if section.tag is not None:
        sources = [f"{section.tag} {line}" for line in sources]
    elif tokenizer is not None:
        sources = tagged(sources, languages[1], prepare, tokenizer)
    return SetText(name=section.name, languages=languages, sources=sources, references=references, role=section.role)


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
        languages=(dataset.index.source_language, dataset.index.target_language),
        sources=sources,
        references=[references],
        role=role,
    )


def with_validation(texts: Sequence[SetText], datasets: Mapping[str, Dataset]) -> list[SetText]:
    """Some sets, after the prepared validation sets of all datasets unless one of the former is for validation.

    Raises:
        UserError: two would have the same name.
    """
    if not any(text.role == "validation" for text in texts):
        having = {name: dataset for name, dataset in datasets.items() if "valid" in dataset.index.held_out}
        texts = [*(prepared_set(name, dataset, "valid") for name, dataset in having.items()), *texts]
    check_names(texts, "evaluation.sets")
    return list(texts)


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
    is_listed = any(section.prepared == "test" for section in sections)
    if not is_listed and any("test" in dataset.index.held_out for dataset in names.values()):
        sections = [*sections, HeldOutSection(name="test", role="test", prepared="test")]
    texts = load_sets(sections, config.prepare, names, tokenizer=tokenizer)
    return with_validation(texts, names)


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
