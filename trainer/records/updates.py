"""The records that a run keeps of every update."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from configs import TrainingSection
from data_pipeline.stream.batch import MicroBatch
from trainer.engines.batches import Update, tokens_digest
from trainer.ranks.distributed import World
from trainer.runs.history.updates import NoUpdateLog, UpdateLog
from trainer.runs.layout import PAIRS
from trainer.runs.metrics_file import LineFile, cut_back


class UpdateRecords:
    """Writes the digest of every update and, if `training.record_pairs` is set, its pairs.

    Rank 0 writes the digests; every rank writes the pairs of its own micro-batches.
    """

    def __init__(self, run: Path, section: TrainingSection, *, resume_step: int, world: World) -> None:
        """Remove what was written after the checkpoint's step.

        Args:
            run: the run's folder.
            section: says whether pairs are recorded.
            resume_step: step of the checkpoint; 0 for a new run.
            world: the ranks.
        """
        self._pairs = PairLog(run / PAIRS, enabled=section.record_pairs, resume_step=resume_step, world=world)
        self._digests = UpdateLog(run, resume_step=resume_step) if world.is_main else NoUpdateLog()
        self.on_update: Callable[[int, Update, float], None] | None = None
        """If set, is called with every recorded update, its step and its loss; `zeromt replay` sets it."""

    def write(self, step: int, update: Update) -> None:
        """Record an update before its loss is known.

        Args:
            step: number of the update.
            update: this rank's part of the update.
        """
        self._pairs.write(step, update.micro_batches)

    def note_loss(self, step: int, update: Update, loss: float) -> None:
        """Record the loss of an update; called in the order of the updates.

        Args:
            step: number of the update.
            update: any rank's part of the update.
            loss: mean per target token over all ranks.
        """
        self._digests.write(step, update.counts.pairs_digest, loss)
        if self.on_update is not None:
            self.on_update(step, update, loss)

    def close(self) -> None:
        """Close the files."""
        self._pairs.close()
        self._digests.close()


class PairLog:
    """Appends {"step", "lane", "pairs"} lines to pairs/rank-NNNNN.jsonl; writes nothing unless enabled.

    If pairs are augmented, "tokens" is the digest of the resulting tokens.
    """

    def __init__(self, folder: Path, *, enabled: bool, resume_step: int, world: World) -> None:
        """Remove what earlier starts wrote after the checkpoint's step, in the files of all their ranks."""
        self._file: LineFile | None = None
        if world.is_main and folder.is_dir():
            for path in folder.glob("rank-*.jsonl"):
                cut_back(path, resume_step)
        world.barrier()
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = LineFile(folder / f"rank-{world.rank:05d}.jsonl")

    def write(self, step: int, micro_batches: Sequence[MicroBatch | None]) -> None:
        """Record one update of this rank."""
        if self._file is None:
            return
        for micro_batch in micro_batches:
            if micro_batch is not None:
                line = {"step": step, "lane": micro_batch.lane, "pairs": micro_batch.pair_ids.tolist()}
                if micro_batch.num_augmented is not None:
                    line["tokens"] = tokens_digest(micro_batch)
                self._file.write(json.dumps(line))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
