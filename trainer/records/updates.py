"""The records that a run keeps of every update."""

from collections.abc import Callable
from pathlib import Path

from configs import TrainingSection
from trainer.engines.batches import Update
from trainer.ranks.distributed import World
from trainer.records.pairs import PairLog
from trainer.runs.history.updates import NoUpdateLog, UpdateLog
from trainer.runs.layout import PAIRS


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
