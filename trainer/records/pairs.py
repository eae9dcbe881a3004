"""Which pairs stood in which update: an audit trail, one file for each rank."""

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
    """Appends {"step", "lane", "pairs"} lines to pairs/rank-NNNNN.jsonl; writes nothing unless it is asked for.

    Where pairs are augmented, "tokens" is the digest of what became of them.
    """

    def __init__(self, folder: Path, *, enabled: bool, resume_step: int, world: World) -> None:
        """Cut back what any earlier rank wrote after the checkpoint's step, whatever the world size was then."""
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
                except OSError as error:  # a full disk: the digest of the pairs stands in metrics.jsonl too
                    log.warning("pairs/ has a gap at step %d, training goes on: %s", step, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
