"""A run's datasets, opened and named, and checks that its model can use them."""

import dataclasses
import itertools
import logging
from collections.abc import Sequence
from typing import Literal

from configs import DatasetSource, PrepareSection, RunConfig, UserError
from data_pipeline.preparation.recipe import stale_error, stale_fields
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.phase_data import StreamPhase
from data_pipeline.stream.reader import StreamReader
from data_pipeline.tokenizer import Tokenizer

SIDES: tuple[Literal["source", "target"], ...] = ("source", "target")
log = logging.getLogger(__name__)


def dataset_names(datasets: Sequence[Dataset]) -> dict[str, Dataset]:
    """Datasets by name; a number is added to a name that is taken."""
    names: dict[str, Dataset] = {}
    for dataset in datasets:
        candidates = itertools.chain([dataset.name], (f"{dataset.name}-{n}" for n in itertools.count(2)))
        names[next(name for name in candidates if name not in names)] = dataset
    return names


def tokenizer_of(datasets: Sequence[Dataset]) -> Tokenizer:
    """The tokenizer of a run: that of its datasets; the reader refuses those that have several."""
    return datasets[0].tokenizer


def open_datasets(config: RunConfig) -> list[Dataset]:
    """`config.datasets`, opened.

    Raises:
        UserError: one cannot be; in a run with phases with the field that names it.
    """
    datasets = []
    for named_in, source in config.named_datasets.values():
        try:
            datasets.append(Dataset.load(source.path, config.stream))
        except UserError as error:
            if not config.phases:
                raise
            raise UserError(f"{named_in}: {error}") from error
    return datasets


def with_languages(config: RunConfig, datasets: Sequence[Dataset]) -> RunConfig:
    """The configuration with the languages of its data, which scores, exports and model cards go by.

    It keeps its own where `prepare` describes a preparation or names languages, or where datasets differ.
    """
    default = PrepareSection()
    own = (config.prepare.source_language, config.prepare.target_language)
    languages = {(dataset.index.source_language, dataset.index.target_language) for dataset in datasets}
    is_own = not config.prepare.train.is_empty or own != (default.source_language, default.target_language)
    if is_own or len(languages) != 1:
        return config
    [(source, target)] = languages
    prepare = dataclasses.replace(config.prepare, source_language=source, target_language=target)
    return dataclasses.replace(config, prepare=prepare)


def open_reader(config: RunConfig, datasets: Sequence[Dataset], *, rank: int, world_size: int) -> StreamReader:
    """A rank's reader of a run's data, at their beginning.

    Args:
        config: of the run.
        datasets: `config.datasets`, opened.
        rank: of this process.
        world_size: number of ranks.

    Raises:
        UserError: as `StreamReader`.
    """
    numbers = {source.path: number for number, source in enumerate(config.datasets)}
    phases = []
    for stream in config.streams:
        sources = stream.datasets or [DatasetSource(path=config.prepare.output)]
        own, weights = [numbers[source.path] for source in sources], [source.weight for source in sources]
        loss_weights = [source.loss_weight for source in sources]
        phases.append(StreamPhase(numbers=own, weights=weights, section=stream, loss_weights=loss_weights))
    weighted = [(dataset, source.weight) for dataset, source in zip(datasets, config.datasets, strict=True)]
    return StreamReader(weighted, config.stream, seed=config.seed, rank=rank, world_size=world_size, phases=phases)


def check_lengths(datasets: Sequence[Dataset], config: RunConfig) -> None:
    """Refuse datasets with pairs that fit a micro-batch but are too long for the model.

    Raises:
        UserError: naming the dataset, its longest pair and what is allowed.
    """
    most, multiple = config.model.max_positions, config.stream.length_multiple
    for dataset in datasets:
        for side in SIDES:
            longest, budget = dataset.longest(side), getattr(config.stream, f"{side}_tokens")
            padded = min(-(-longest // multiple), budget // multiple) * multiple
            if padded > most:
                raise UserError(
                    f"model.max_positions: {most} is less than the {padded} of the longest {side} in "
                    f"{dataset.location}, with EOS and stream.length_multiple={multiple}; allowed is at least that, or "
                    f"stream.{side}_tokens={most} with stream.on_oversized_pair=drop"
                )


def check_prepared(
    datasets: Sequence[Dataset], config: RunConfig, *, saved: PrepareSection | None, reset: bool
) -> None:
    """Refuse a dataset that was not prepared as `prepare` says. Mixtures are exempt: other sections prepared theirs.

    A run that has begun with such a dataset resumes, and `--reset data` accepts it; the log names what differs.

    Args:
        datasets: of the run.
        config: of the run.
        saved: the section in the checkpoint that is resumed.
        reset: whether the data begin anew.

    Raises:
        UserError: naming the fields that differ.
    """
    if not config.reads_prepared:
        return
    dataset = datasets[[source.path for source in config.datasets].index(config.prepare.output)]
    fields = stale_fields(config.prepare, dataset.index)
    known = fields if reset else stale_fields(saved, dataset.index) if saved is not None else []
    if changed := [field for field in fields if field not in known]:
        raise stale_error(changed, dataset.location, "zeromt prepare CONFIG")
    if fields:
        log.warning("%s was not prepared as `prepare` says: %s", dataset.location, "; ".join(fields))


def check_tags(datasets: Sequence[Dataset], config: RunConfig) -> None:
    """Refuse datasets whose language tags are not where the run's model has them.

    Raises:
        UserError: naming the dataset.
    """
    ours = config.prepare.tag_both_sides
    for dataset in datasets:
        if dataset.tag_both_sides != ours:
            raise UserError(
                f"prepare.tag_both_sides: {str(ours).lower()}, and {dataset.location} was prepared with "
                f"{str(not ours).lower()}; allowed is what the data have"
            )
