"""The held-out sets of a run with their scorers, and copies with modified text, by which its effect is measured."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping, Sequence

from configs import RunConfig, UserError
from configs.components import Draws, Modifier, ScoredText, TextModifier
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.augmentation.texts import check_spelling
from data_pipeline.tag_pieces import cut_tag
from trainer.datasets import dataset_names, tokenizer_of
from trainer.evaluation.sets import HeldOutSet, SetText, check_names, load_sets, validation_sets
from trainer.inference.translation.languages import LanguageTags, encode_source, language_tags
from trainer.inference.translation.sources import SourceCounts
from trainer.metrics.scoring import Scorer
from trainer.ranks.distributed import World

log = logging.getLogger(__name__)


def held_out_sets(config: RunConfig, datasets: Sequence[Dataset], world: World) -> list[HeldOutSet]:
    """The sets to evaluate on: `evaluation.sets`, plus the prepared validation sets if none of these is for validation.

    Rank 0 reads files for all ranks, and warns of scores that will mean little.

    Raises:
        UserError: a set or a metric cannot be used, or something needs a validation set and there is none.
    """
    names = dataset_names(datasets)
    tokenizer = tokenizer_of(datasets)
    sections, option = config.evaluation.sets, "evaluation.sets"
    texts: list[SetText] = world.on_main(
        lambda: load_sets(sections, config.prepare, names, option=option, tokenizer=tokenizer), SetText
    )
    prepared = [] if any(text.role == "validation" for text in texts) else _prepared(names, world)
    texts = [*prepared, *texts]
    if not any(text.role == "validation" for text in texts):
        _check_without(config, texts, world)
    copies = perturbed([text for text in texts if text.role == "validation"], config.evaluation.perturb)
    for number, modifier in enumerate(config.evaluation.perturb if world.is_main else ()):
        try:
            check_spelling(modifier, tokenizer, f"evaluation.perturb.{number}: {modifier.kind}")
        except UserError as error:  # a score all the same, if a low one
            log.warning("%s", error)
    check_names(texts := [*texts, *copies], "evaluation.perturb")
    sets = []
    for text in texts:
        scored = ScoredText(target_language=text.languages[1], tokenizer=config.evaluation.tokenizer)
        scorer = Scorer(config.evaluation.metrics, scored, num_references=len(text.references))
        for doubt in scorer.doubts(text.references) if world.is_main else ():
            log.warning("evaluation.tokenizer: %s: %s", text.name, doubt)
        languages = {"source": text.languages[0], "target": text.languages[1]}
        has_tags = config.prepare.tag_both_sides and text.has_tags_of_both_sides
        tags = language_tags(config.prepare, tokenizer, **languages) if has_tags else None
        for line in _doubts(text, config, datasets, tags) if world.is_main and text not in copies else ():
            log.warning("%s: %s: %s", "prepare.valid" if text in prepared else option, text.name, line)
        sets.append(
            HeldOutSet(
                name=text.name,
                languages=text.languages,
                sources=text.sources,
                references=text.references,
                scorer=scorer,
                tags=tags,
                role=text.role,
            )
        )
    return sets


def _doubts(text: SetText, config: RunConfig, datasets: Sequence[Dataset], tags: LanguageTags | None) -> list[str]:
    """Warnings of lines that every evaluation will cut, or translate without what the model was trained to see."""
    tokenizer, positions, counts = tokenizer_of(datasets), config.model.max_positions, SourceCounts()
    lines = text.sources[: config.evaluation.max_pairs]
    counts.note(tokenizer, lines, encode_source(tokenizer, lines, tags), positions - 1)
    expects_tag = all(dataset.index.target_tag is not None for dataset in datasets)
    return counts.warnings(tokenizer, positions, expects_tag=expects_tag)


def _prepared(datasets: Mapping[str, Dataset], world: World) -> list[SetText]:
    """The validation sets of all datasets that have one."""
    without = [name for name, dataset in datasets.items() if "valid" not in dataset.index.held_out]
    if world.is_main and without and len(without) < len(datasets):
        log.info("not evaluated, for want of a validation set (prepare.valid): %s", ", ".join(without))
    return validation_sets(datasets)


def _check_without(config: RunConfig, texts: Sequence[SetText], world: World) -> None:
    """Check that a run without a validation set can work.

    Raises:
        UserError: a setting needs a validation set.
    """
    if texts:
        raise UserError(
            "evaluation.sets: none of them is for validation, and the data have no validation set; give one "
            "role: validation, or set prepare.valid"
        )
    if config.training.early_stopping is not None:
        raise UserError("training.early_stopping: needs a validation set; name one by evaluation.sets or prepare.valid")
    plateaus = [n for n, one in enumerate(config.phases) if one.until is not None and one.until.plateau is not None]
    if plateaus:
        where = f"phases.{plateaus[0]}.until.plateau"
        raise UserError(f"{where}: needs a validation set; name one by evaluation.sets or prepare.valid")
    if world.is_main:
        log.warning(
            "no validation set (prepare.valid): this run reports its training loss alone; nothing is evaluated, and "
            "checkpoint.keep_best keeps nothing"
        )


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
