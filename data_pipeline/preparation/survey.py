"""The first pass over a corpus: how many pairs there are and where, and the tokenizer.

What it found is kept in the work folder, so that a preparation that goes on, or a share of one on another machine, does
not look again.
"""

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from configs import PrepareSection, UserError
from data_pipeline.preparation.cleaning import HeldOut
from data_pipeline.preparation.corpus import Part, Unit, stream_parts
from data_pipeline.preparation.encode import make_cleaner
from data_pipeline.preparation.progress import Progress
from data_pipeline.preparation.staging import sync_folder
from data_pipeline.preparation.tokenizer_training import Sample, forecast_memory, train_tokenizer
from data_pipeline.tokenizer import Tokenizer

PARTS_FILE = "parts.json"


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first pass found."""

    parts: list[Part]
    tokenizer: Tokenizer

    @property
    def num_pairs(self) -> int:
        """Pairs of the corpus as it was given."""
        return sum(part.pairs for part in self.parts)


def survey(
    section: PrepareSection,
    units: Sequence[Unit],
    held_out: HeldOut,
    tokenizer: Tokenizer | None,
    folder: Path,
    *,
    part_pairs: int,
) -> Survey:
    """What an earlier run left in `folder`, or what a pass over the corpus finds.

    Args:
        section: what is prepared.
        units: the training corpus.
        held_out: what is taken out of it.
        tokenizer: an existing one, or None to train one.
        folder: where the result is kept; not there before the first pass is done.
        part_pairs: pairs of a part.

    Raises:
        UserError: a file is broken, or no tokenizer can be trained on the corpus.
    """
    if not folder.exists():
        beside = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        _make(section, units, held_out, tokenizer, beside, part_pairs)
        sync_folder(beside)
        try:
            beside.rename(folder)
        except OSError:  # another share was quicker, on a file system without locks; it found the same
            if not folder.exists():
                raise
            shutil.rmtree(beside, ignore_errors=True)
    parts = TypeAdapter(list[Part]).validate_json((folder / PARTS_FILE).read_bytes())
    return Survey(parts, Tokenizer.load(folder))


def _make(
    section: PrepareSection,
    units: Sequence[Unit],
    held_out: HeldOut,
    tokenizer: Tokenizer | None,
    folder: Path,
    part_pairs: int,
) -> None:
    """Read the corpus once: count, sample, train."""
    settings = section.tokenizer
    sample = Sample(settings.sample_pairs, settings.sample_megabytes * 1_000_000, section.seed)
    parts: list[Part] = []
    with Progress("reading") as progress:
        for number, unit in enumerate(units):
            for part, raw in stream_parts(unit, number, len(parts), part_pairs):
                if tokenizer is None:
                    sample.add(raw, part.number)
                parts.append(part)
                progress.advance(part.pairs)
    if tokenizer is None:
        num_pairs = sum(part.pairs for part in parts)
        cleaned = make_cleaner(section, held_out).clean(*sample.finish())
        if not cleaned.sources:
            raise UserError(
                f"prepare.train: nothing is left of {num_pairs:,} pairs; allowed is a corpus with sentences"
            )
        size = sum(len(line.encode()) for side in (cleaned.sources, cleaned.targets) for line in side)
        memory = forecast_memory(settings, cleaned.sources, cleaned.targets) / 1e9
        print(
            f"training the tokenizer on {len(cleaned.sources):,} of {num_pairs:,} pairs, {size / 1e6:,.1f} MB of text; "
            f"takes up to {memory:.1f} GB of memory",
            flush=True,
        )
        tokenizer = train_tokenizer(settings, cleaned.sources, cleaned.targets)
    tokenizer.save(folder)
    (folder / PARTS_FILE).write_text(json.dumps([dataclasses.asdict(part) for part in parts]))
