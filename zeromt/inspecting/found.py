"""Finds the micro-batches of an update again, from the position of the run's data before it."""

import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_saved
from data_pipeline.order.state import StreamState
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader
from trainer.checkpoint.format import Checkpoint, CheckpointError, read_checkpoint, read_whole
from trainer.checkpoint.state import TrainerState
from trainer.datasets import open_datasets, open_reader
from trainer.engines.batches import UpdateCounts, count
from trainer.runs.history.positions import LEFT_OUT, SkippedRange, read_position, read_ranges, read_switches
from trainer.runs.layout import CHECKPOINTS, CONFIG, LEDGER_FILE, METRICS_FILE, list_steps, step_of
from trainer.runs.ledger import read_highest_step
from trainer.runs.metrics_file import read_lines, whole
from trainer.stability.rewind import is_skipped

SkippedRanges = Sequence[SkippedRange]
MADE_WITH = ("versions", "fingerprints", "precision", "world_size")


@dataclass(kw_only=True, slots=True, frozen=True)
class Standing:
    """A position in a run's data, and the settings of the updates from there on."""

    step: int
    """Updates done."""
    stream: Mapping[str, Any] | None
    """`StreamState.to_json`; None at the beginning of the data."""
    config: RunConfig
    skipped_ranges: SkippedRanges
    made_with: Mapping[str, Any]
    """Versions, fingerprints, precision and world size, by these names; empty if they are not known."""
    switches: Sequence[tuple[int, int]] = ()
    """Phases that begin from there on: the updates done before, and the number of the phase."""


@dataclass(kw_only=True, slots=True, frozen=True)
class FoundUpdate:
    """An update of a run."""

    step: int
    epoch: int
    number: int
    """Within the epoch."""
    micro_batches: Sequence[MicroBatch]
    """The micro-batches that are not empty, by lane."""
    counts: UpdateCounts
    datasets: Sequence[Dataset]
    found_from: Standing
    phase: str | None
    """Its name, in a run with phases."""

    def place(self, micro_batch: MicroBatch, row: int) -> tuple[Dataset, int]:
        """A pair's dataset, and its row in the dataset's tables."""
        first = sum(dataset.num_pairs for dataset in self.datasets[: micro_batch.dataset])
        return self.datasets[micro_batch.dataset], int(micro_batch.pair_ids[row]) - first


def find_update(run: Path, step: int) -> FoundUpdate:
    """An update of a run, by number.

    Args:
        run: the run's folder.
        step: from 1.

    Raises:
        UserError: the run has not made it, or its data are missing or have changed.
    """
    check_made(run, step)
    standing = standing_before(run, step)
    reader = open_stream(standing)
    try:
        updates = updates_from(reader, standing)
        epoch, number, micro_batches = next(itertools.islice(updates, step - standing.step - 1, None))
    finally:
        reader.close()
    return FoundUpdate(
        step=step,
        epoch=epoch,
        number=number,
        micro_batches=micro_batches,
        counts=count(micro_batches),
        datasets=reader.datasets,
        found_from=standing,
        phase=standing.config.phases[reader.phase.number].name if standing.config.phases else None,
    )


def updates_from(reader: StreamReader, standing: Standing) -> Iterator[tuple[int, int, list[MicroBatch]]]:
    """An endless iterator of updates as in training: epoch, number within it, micro-batches.

    Args:
        reader: of all lanes, at the position of `standing`.
        standing: says which updates are skipped, and where phases begin.

    Raises:
        DataError: a block is corrupt.
    """
    done, phases = standing.step, dict(standing.switches)
    while True:
        if (phase := phases.pop(done, None)) is not None and phase != reader.phase.number:
            reader.begin_phase(phase, epoch=reader.epoch + (reader.update > 0))
        epoch, number = reader.epoch, reader.update
        micro_batches = [m for m in reader.next_update() if m is not None]
        if not micro_batches:
            reader.end_epoch()
        elif not is_skipped(standing.skipped_ranges, epoch, number) and not is_weightless(micro_batches):
            done += 1
            yield epoch, number, micro_batches


def is_weightless(micro_batches: Sequence[MicroBatch]) -> bool:
    """Whether training leaves an update out: all of its pairs have weight 0."""
    return all(m.weights is not None and not m.weights.any() for m in micro_batches)


def open_stream(standing: Standing) -> StreamReader:
    """All lanes of a run's stream, at the given position.

    Raises:
        UserError: a dataset is missing, or is not the one that the run was trained on.
    """
    config = standing.config
    without_processes = replace(config, stream=replace(config.stream, workers=0))
    reader = open_reader(without_processes, open_datasets(config), rank=0, world_size=1)
    if standing.stream is not None:
        reader.restore(StreamState.from_json(dict(standing.stream)))
    return reader


def check_made(run: Path, step: int) -> None:
    """Refuse an update that the run has not made.

    Raises:
        UserError: the run has not made it.
    """
    steps = [step_of(folder) or 0 for folder in list_steps(run / CHECKPOINTS)]
    logged = (whole(line.get("step")) or 0 for line in read_lines(run / METRICS_FILE, having='"train"'))
    made = max([read_highest_step(run / LEDGER_FILE), *steps, *logged])
    if not made:
        raise UserError(f"RUN: {run} has made no update; give the folder of a run that has")
    if step > made:
        raise UserError(f"UPDATE: {step:,}, and {run} has made {made:,}; allowed is 1 to {made:,}")


def standing_before(run: Path, step: int) -> Standing:
    """The last known position of the data before an update.

    It is a start or a save in history.jsonl. Where that is missing, it is a checkpoint or the beginning, with the
    configuration of then.

    Raises:
        UserError: no position is known.
    """
    position = read_position(run, step)
    if position is not None:
        config = parse_config(position.start.config, run)
        return Standing(
            step=position.step,
            stream=position.stream,
            config=config,
            skipped_ranges=position.start.skipped_ranges,
            made_with={name: getattr(position.start, name) for name in MADE_WITH},
            switches=read_switches(run, position.step),
        )
    checkpoint = _any_before(run, step)
    if checkpoint is None:
        config, skipped = _first_config(run), _rewinds(run, step) or ()
        return Standing(step=0, stream=None, config=config, skipped_ranges=skipped, made_with={})
    tree = checkpoint.state()
    state = TrainerState.from_json(tree["trainer"])
    return Standing(
        step=state.step,
        stream=tree.get("stream"),
        config=load_saved(checkpoint.folder / CONFIG, any_version=True),
        skipped_ranges=_rewinds(run, step) or state.skipped_ranges,
        made_with={name: checkpoint.manifest[name] for name in MADE_WITH if name in checkpoint.manifest},
    )


def parse_config(text: str, run: Path) -> RunConfig:
    """Parse a resolved configuration that was kept as text.

    Raises:
        UserError: it needs a plugin that is not given.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, CONFIG)
        path.write_text(text, encoding="utf-8")
        try:
            return load_saved(path, any_version=True)
        except UserError as error:
            raise UserError(str(error).replace(str(path), str(run / CONFIG))) from error


def checkpoint_before(run: Path, step: int) -> Checkpoint:
    """The newest whole checkpoint before an update, every byte of it verified.

    Raises:
        UserError: there is none.
    """
    refused: list[str] = []
    for folder in _folders_before(run, step):
        try:
            return read_whole(folder)
        except CheckpointError as error:
            refused.append(str(error))
    kept = sorted(step_of(folder) or 0 for folder in list_steps(run / CHECKPOINTS))
    have = f"the first that is kept is of step {kept[0]:,}" if kept else "none is kept"
    why = refused[0] if refused else have
    raise UserError(f"RUN: {run} has no whole checkpoint before update {step:,}: {why}; see checkpoint.keep_every")


def _any_before(run: Path, step: int) -> Checkpoint | None:
    for folder in _folders_before(run, step):
        try:
            return read_checkpoint(folder)
        except CheckpointError:
            continue
    return None


def _folders_before(run: Path, step: int) -> list[Path]:
    return [folder for folder in list_steps(run / CHECKPOINTS) if (step_of(folder) or 0) < step]


def _first_config(run: Path) -> RunConfig:
    """The configuration of the oldest checkpoint, else the run's current one."""
    folders = [folder for folder in reversed(list_steps(run / CHECKPOINTS)) if (folder / CONFIG).is_file()]
    return load_saved((folders[0] if folders else run) / CONFIG, any_version=True)


def _rewinds(run: Path, step: int) -> SkippedRanges | None:
    """The ranges that are skipped since the last rewind before an update, from the log."""
    ranges: SkippedRanges | None = None
    for line in read_lines(run / METRICS_FILE, having='"rewind"'):
        at = whole(line.get("step"))
        if line.get("event") == "rewind" and at is not None and at < step:
            ranges = read_ranges(line[LEFT_OUT])
    return ranges
