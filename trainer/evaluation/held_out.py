"""The held-out sets of a run with their scorers."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence

from configs import RunConfig, UserError
from configs.components import ScoredText
from data_pipeline.prepared.dataset import Dataset
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
    check_names(texts, option)
    sets = []
    for text in texts:
        scored = ScoredText(target_language=text.languages[1], tokenizer=config.evaluation.tokenizer)
        scorer = Scorer(config.evaluation.metrics, scored, num_references=len(text.references))
        for doubt in scorer.doubts(text.references) if world.is_main else ():
            log.warning("evaluation.tokenizer: %s: %s", text.name, doubt)
        languages = {"source": text.languages[0], "target": text.languages[1]}
        has_tags = config.prepare.tag_both_sides and text.has_tags_of_both_sides
        tags = language_tags(config.prepare, tokenizer, **languages) if has_tags else None
        for line in _doubts(text, config, datasets, tags) if world.is_main else ():
            log.warning("%s: %s: %s", "prepare.valid" if text in prepared else option, text.name, line)
        sets.append(
            HeldOutSet(**{f.name: getattr(text, f.name) for f in dataclasses.fields(text)}, scorer=scorer, tags=tags)
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
