"""The held-out sets of a run's datasets, with what scores them."""

import logging
from collections.abc import Sequence

from configs import RunConfig
from data_pipeline.prepared.dataset import Dataset
from trainer.datasets import dataset_names
from trainer.evaluation import HeldOutSet
from trainer.scoring import Scorer, bleu_tokenizer, spacing_problem
from trainer.translation.languages import language_tags

log = logging.getLogger(__name__)


def held_out_sets(config: RunConfig, datasets: Sequence[Dataset], *, is_main: bool) -> list[HeldOutSet]:
    """The validation sets, of every dataset that has one; rank 0 warns of scores that will say little.

    Raises:
        UserError: none has, or BLEU's tokenizer cannot be used.
    """
    tokenizer = datasets[0].tokenizer
    names = dataset_names(datasets)
    found = []
    for name, dataset in ({n: d for n, d in names.items() if "valid" in d.index.held_out} or names).items():
        sources, references = dataset.held_out("valid")
        scorer = Scorer(bleu_tokenizer(config.evaluation.tokenizer, dataset.target_language))
        if is_main and (problem := spacing_problem(scorer.tokenizer, references)):
            log.warning("evaluation.tokenizer: %s: %s", name, problem)
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
