"""The pairs of every update, as `training.record_pairs` asks for them."""

import json
from collections.abc import Sequence
from pathlib import Path

from data_pipeline.stream.batch import MicroBatch
from trainer.engines.batches import tokens_digest
from trainer.ranks.distributed import World
from trainer.runs.layout import PAIRS
from trainer.runs.metrics_file import LineFile, cut_back


class PairLog:
    """Appends {"step", "lane", "pairs"} lines to pairs/rank-NNNNN.jsonl; writes nothing unless enabled.

    If pairs are augmented, "tokens" is the digest of the resulting tokens.
    """

    def __init__(self, run: Path, *, enabled: bool, resume_step: int, world: World) -> None:
        """Remove what earlier starts wrote after the checkpoint's step, in the files of all their ranks."""
        self._file: LineFile | None = None
        folder = run / PAIRS
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
