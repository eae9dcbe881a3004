"""An audit trail of which pairs were in which update, with one file for each rank."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from data_pipeline.stream.batch import MicroBatch
from trainer.engines.batches import tokens_digest
from trainer.ranks.distributed import World
from trainer.runs.metrics_file import cut_back

log = logging.getLogger(__name__)


class PairLog:
    """Appends {"step", "lane", "pairs"} lines to pairs/rank-NNNNN.jsonl; writes nothing unless enabled.

    If pairs are augmented, "tokens" is the digest of the resulting tokens.
    """

    def __init__(self, folder: Path, *, enabled: bool, resume_step: int, world: World) -> None:
        """Remove what earlier starts wrote after the checkpoint's step, in the files of all their ranks."""
        self._file: TextIO | None = None
        if world.is_main and folder.is_dir():
            for path in folder.glob("rank-*.jsonl"):
                cut_back(path, resume_step)
        world.barrier()
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"rank-{world.rank:05d}.jsonl").open("a", buffering=1)

    def write(self, step: int, micro_batches: Sequence[MicroBatch | None]) -> None:
        """Record one update of this rank."""
        if self._file is None:
            return
        for micro_batch in micro_batches:
            if micro_batch is not None:
                line = {"step": step, "lane": micro_batch.lane, "pairs": micro_batch.pair_ids.tolist()}
                if micro_batch.num_augmented is not None:
                    line["tokens"] = tokens_digest(micro_batch)
                try:
                    self._file.write(json.dumps(line) + "\n")
                except OSError as error:  # such as a full disk; metrics.jsonl still has the digest of the pairs
                    log.warning("pairs/ has a gap at step %d; training goes on: %s", step, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
