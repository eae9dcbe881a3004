"""The held-out sets of a run's datasets, with what scores them."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from configs import RunConfig, UserError
from configs.components import ScoredText
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.model_files import build_model
from trainer.datasets import dataset_names
from trainer.evaluation.evaluator import Evaluator, HeldOutSet
from trainer.inference.translation.languages import language_tags
from trainer.metrics.scoring import Scorer
from trainer.ranks.distributed import World
from trainer.ranks.precision import DTYPES, Precision
from trainer.runs.layout import EVALUATIONS

log = logging.getLogger(__name__)


def held_out_sets(config: RunConfig, datasets: Sequence[Dataset], *, is_main: bool) -> list[HeldOutSet]:
    """The validation sets, of every dataset that has one; rank 0 says who has none, and what scores will say little.

    Raises:
        UserError: a metric cannot be used, or early stopping has nothing to go by.
    """
    tokenizer = datasets[0].tokenizer
    names = dataset_names(datasets)
    found = []
    without = [name for name, dataset in names.items() if "valid" not in dataset.index.held_out]
    if is_main and len(without) == len(names):
        log.warning(
            "no validation set (prepare.valid): this run reports its training loss alone; nothing is evaluated, and "
            "checkpoint.keep_best keeps nothing"
        )
    if config.training.early_stopping is not None and len(without) == len(names):
        raise UserError("training.early_stopping: there is no validation set to go by; prepare.valid names one")
    if is_main and without and len(without) < len(names):
        log.info("not evaluated, for want of a validation set (prepare.valid): %s", ", ".join(without))
    for name, dataset in ((n, d) for n, d in names.items() if n not in without):
        sources, references = dataset.held_out("valid")
        text = ScoredText(target_language=dataset.target_language, tokenizer=config.evaluation.tokenizer)
        scorer = Scorer(config.evaluation.metrics, text)
        for doubt in scorer.doubts([references]) if is_main else ():
            log.warning("evaluation.tokenizer: %s: %s", name, doubt)
        languages = {"source": dataset.source_language, "target": dataset.target_language}
        tags = language_tags(config.prepare, tokenizer, **languages) if dataset.tag_both_sides else None
        found.append(
            HeldOutSet(
                name=name,
                languages=tuple(languages.values()),
                sources=sources,
                references=references,
                scorer=scorer,
                tags=tags,
            )
        )
    return found


def make_evaluator(
    config: RunConfig,
    tokenizer: Tokenizer,
    held_out: Sequence[HeldOutSet],
    world: World,
    precision: Precision,
    stop_requested: Callable[[], bool],
) -> Evaluator:
    """The evaluator of the held-out sets."""
    return Evaluator(
        config.evaluation,
        build_model=lambda: build_model(config.model, tokenizer, seed=config.seed),
        tokenizer=tokenizer,
        held_out=held_out,
        loss=config.loss.build(),
        dtype=DTYPES[precision],
        world=world,
        folder=Path(config.folder) / EVALUATIONS,
        stop_requested=stop_requested,
    )
