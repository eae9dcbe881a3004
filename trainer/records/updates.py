"""What a run writes down of every update."""

from collections.abc import Callable
from pathlib import Path

from configs import TrainingSection
from trainer.engines.batches import Update
from trainer.ranks.distributed import World
from trainer.records.pairs import PairLog
from trainer.runs.history.updates import NoUpdateLog, UpdateLog
from trainer.runs.layout import PAIRS


class UpdateRecords:
    """Digests of all updates, and their pairs where that is asked for. All ranks write alike, each its own part."""

    def __init__(self, run: Path, section: TrainingSection, *, resume_step: int, world: World) -> None:
        """Cut back what was written after the checkpoint's step.

        Args:
            run: the run's folder.
            section: says whether the pairs are written down.
            resume_step: updates done.
            world: the ranks.
        """
        self._pairs = PairLog(run / PAIRS, enabled=section.record_pairs, resume_step=resume_step, world=world)
        self._digests = UpdateLog(run, resume_step=resume_step) if world.is_main else NoUpdateLog()
        self.on_update: Callable[[int, Update, float], None] | None = None
        """Is told of every update that was recorded, if set: `zeromt replay`."""

    def write(self, step: int, update: Update) -> None:
        """Record an update of which the loss is not known yet.

        Args:
            step: its number.
            update: this rank's part of it.
        """
        self._pairs.write(step, update.micro_batches)

    def note_loss(self, step: int, update: Update, loss: float) -> None:
        """Record what an update came to; in their order.

        Args:
            step: its number.
            update: any rank's part of it.
            loss: a target token's, over all ranks.
        """
        self._digests.write(step, update.counts.pairs_digest, loss)
        if self.on_update is not None:
            self.on_update(step, update, loss)

    def close(self) -> None:
        """Close the files."""
        self._pairs.close()
        self._digests.close()
