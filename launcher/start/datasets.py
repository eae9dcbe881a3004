"""The prepared datasets of a run and its sets to evaluate on, looked at before anything is started."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from configs import RunConfig, UserError
from configs.process.files import check_apart, is_dir, is_file, naming, status_of
from data_pipeline.preparation.recipe import stale_error, stale_fields
from data_pipeline.prepared.dataset import open_index
from data_pipeline.prepared.index import INDEX_FILE
from trainer.runs.layout import CHECKPOINTS


def check_datasets(
    run: RunConfig, config: str, overrides: Sequence[str], plugins: Sequence[str] = (), *, parent: str | None = None
) -> None:
    """Refuse to start without the prepared datasets, or with one that was prepared with other settings.

    Args:
        run: the configuration.
        config, overrides, plugins: from which it was read.
        parent: RUN[@step] that the run begins from, if any.

    Raises:
        UserError: one has no index, or another recipe; a file of `evaluation.sets` is missing; or a parent is.
    """
    _check_sets(run)
    words = [word for file in plugins for word in ("--plugins", file)]
    takes = [] if parent is None else ["--tokenizer-of", parent]
    command = shlex.join(
        ["zeromt", "prepare", config, *takes, *words, *(o for o in overrides if o.startswith("prepare."))]
    )
    for key, source in run.named_datasets.values():
        if "://" in source.path:
            continue
        with naming(key):
            is_there = is_file(Path(source.path) / INDEX_FILE)
        if not is_there:
            raise UserError(f"{key}: {source.path!r} holds no index.json; prepare it first: `{command}`")
        check_apart({key: source.path}, {"output/name": run.folder})
    with naming("output"):
        is_new = not is_dir(Path(run.folder) / CHECKPOINTS)  # otherwise the ranks compare with the checkpoint
    if is_new and run.reads_prepared and "://" not in run.prepare.output:
        try:
            _, index, _ = open_index(run.prepare.output)
        except UserError:  # the ranks read all of it, and report what is corrupt
            return
        if fields := stale_fields(run.prepare, index):
            raise stale_error(fields, run.prepare.output, command)


def _check_sets(run: RunConfig) -> None:
    for number, section in enumerate(run.evaluation.sets):
        source = [] if section.source is None else [section.source]
        for field, paths in (("source", source), ("references", section.references)):
            key = f"evaluation.sets.{number}.{field}"
            for path in paths:
                with naming(key):
                    is_there = status_of(path) is not None  # a pipe will do
                if not is_there:
                    raise UserError(
                        f"{key}: {path!r} is not there; name a file, from the folder where the run is started"
                    )
