"""Finds the micro-batches of an update again, from the position of the run's data before it."""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from configs import RunConfig, UserError, load_saved
from data_pipeline.order.state import StreamState
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader
from trainer.checkpoint.format import Checkpoint, CheckpointError, read_whole
from trainer.datasets import open_datasets, open_reader
from trainer.engines.batches import UpdateCounts, count
from trainer.runs.history import Position, read_position
from trainer.runs.layout import CHECKPOINTS, CONFIG, HISTORY_FILE, LEDGER_FILE, METRICS_FILE, list_steps, step_of
from trainer.runs.ledger import read_ledger
from trainer.runs.metrics_file import read_lines, whole
from trainer.spikes import is_skipped


class ReplayedUpdate(NamedTuple):
    """An update of a run."""

    step: int
    epoch: int
    number: int
    """Within the epoch."""
    micro_batches: Sequence[MicroBatch]
    """The micro-batches that are not empty, by lane."""
    counts: UpdateCounts
    datasets: Sequence[Dataset]
    config: RunConfig
    """That it was made with."""
    replayed_from: int
    """The step from which the data were gone through."""
    phase: str | None
    """Its name, in a run with phases."""

    def place(self, micro_batch: MicroBatch, row: int) -> tuple[Dataset, int]:
        """A pair's dataset, and its row in the dataset's tables."""
        first = sum(dataset.num_pairs for dataset in self.datasets[: micro_batch.dataset])
        return self.datasets[micro_batch.dataset], int(micro_batch.pair_ids[row]) - first


def find_update(run: Path, step: int) -> ReplayedUpdate:
    """An update of a run, by number.

    Args:
        run: the run's folder.
        step: from 1.

    Raises:
        UserError: the run has not made it, or its data are missing or have changed.
    """
    _check_made(run, step)
    position = read_position(run, step)
    if position is None:
        raise UserError(f"RUN: {run / HISTORY_FILE} does not say where the data stood before update {step:,}")
    config = _parsed(position.config, run)
    reader = open_reader(
        replace(config, stream=replace(config.stream, workers=0)), open_datasets(config), rank=0, world_size=1
    )
    try:
        reader.restore(StreamState.from_json(dict(position.stream)))
        updates = _updates_from(reader, position)
        epoch, number, micro_batches = next(itertools.islice(updates, step - position.step - 1, None))
    finally:
        reader.close()
    return ReplayedUpdate(
        step=step,
        epoch=epoch,
        number=number,
        micro_batches=micro_batches,
        counts=count(micro_batches),
        datasets=reader.datasets,
        config=config,
        replayed_from=position.step,
        phase=config.phases[reader.phase.number].name if config.phases else None,
    )


def _updates_from(reader: StreamReader, position: Position) -> Iterator[tuple[int, int, list[MicroBatch]]]:
    """An endless iterator of updates as in training: epoch, number within it, micro-batches.

    Args:
        reader: of all lanes, at the position.
        position: says which updates are skipped.

    Raises:
        DataError: a block is corrupt.
    """
    while True:
        epoch, number = reader.epoch, reader.update
        micro_batches = [m for m in reader.next_update() if m is not None]
        if not micro_batches:
            reader.end_epoch()
        elif not is_skipped(position.skipped_ranges, epoch, number) and count(micro_batches).has_weight:
            yield epoch, number, micro_batches


def _check_made(run: Path, step: int) -> None:
    """Refuse an update that the run has not made.

    Raises:
        UserError: the run has not made it.
    """
    steps = [step_of(folder) or 0 for folder in list_steps(run / CHECKPOINTS)]
    logged = (whole(line.get("step")) or 0 for line in read_lines(run / METRICS_FILE, having='"train"'))
    made = max([read_ledger(run / LEDGER_FILE).get("highest_step", 0), *steps, *logged])
    if not made:
        raise UserError(f"RUN: {run} has made no update; give the folder of a run that has")
    if step > made:
        raise UserError(f"UPDATE: {step:,}, and {run} has made {made:,}; allowed is 1 to {made:,}")


def _parsed(config: str, run: Path) -> RunConfig:
    """A resolved configuration that was kept as text.

    Raises:
        UserError: it needs a plugin that is not given.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, CONFIG)
        path.write_text(config, encoding="utf-8")
        try:
            return load_saved(path, any_version=True)
        except UserError as error:
            raise UserError(str(error).replace(str(path), str(run / CONFIG))) from error


def checkpoint_before(run: Path, step: int) -> Checkpoint:
    """The newest whole checkpoint before an update, with every byte verified.

    Raises:
        UserError: there is none.
    """
    refused: list[str] = []
    folders = list_steps(run / CHECKPOINTS)
    for folder in (one for one in folders if (step_of(one) or 0) < step):
        try:
            return read_whole(folder)
        except CheckpointError as error:
            refused.append(str(error))
    kept = sorted(step_of(folder) or 0 for folder in folders)
    have = f"the first that is kept is of step {kept[0]:,}" if kept else "none is kept"
    why = refused[0] if refused else have
    raise UserError(f"RUN: {run} has no whole checkpoint before update {step:,}: {why}; see checkpoint.keep_every")
