"""The first pass over a corpus: counts pairs, finds spans, and trains the tokenizer.

The result is kept in the work folder, so that a resumed preparation, or a part on another machine, need not repeat it.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from configs import PrepareSection, UserError
from configs.process.files.inside import look_again, read_bytes, write_text
from configs.process.progress import Progress, say
from data_pipeline.preparation.corpus import Span, Unit
from data_pipeline.preparation.pool import run_tasks
from data_pipeline.preparation.spans import HeldOutPairs, make_cleaner
from data_pipeline.preparation.staging import sync_folder
from data_pipeline.preparation.tokenizing import PIECE_CHARS, Sample, train_tokenizer
from data_pipeline.tokenizer import Tokenizer

SPANS_FILE = "spans.json"


class SurveyJob(NamedTuple):
    """The input of the first pass."""

    section: PrepareSection
    units: Sequence[Unit]
    """The training corpus."""
    held_out: HeldOutPairs
    """Held-out pairs, for a filter that needs them."""
    tokenizer_files: dict[str, bytes] | None
    """Files of an existing tokenizer; None to train one."""
    span_pairs: int
    """Pairs of a span."""

    def open(self) -> Callable[[Path], None]:
        """The function that makes the first pass and writes its result to a folder."""
        return self.make

    def make(self, folder: Path) -> None:
        """Read the corpus once: count, sample, train.

        Raises:
            UserError: a file is broken, or no tokenizer can be trained on the corpus.
        """
        settings = self.section.tokenizer
        longest = PIECE_CHARS * self.section.max_pieces
        sample = Sample(settings.sample_pairs, settings.sample_megabytes * 1_000_000, self.section.seed, longest)
        spans: list[Span] = []
        with Progress("reading") as progress:
            for number, unit in enumerate(self.units):
                for span, raw in unit.stream(number, len(spans), self.span_pairs):
                    if self.tokenizer_files is None:
                        sample.add(raw, span.number)
                    spans.append(span)
                    progress.advance(span.pairs)
        if self.tokenizer_files is None:
            tokenizer = self._train(sample, sum(span.pairs for span in spans))
        else:
            tokenizer = Tokenizer(self.tokenizer_files)
        tokenizer.save(folder)
        write_text(folder / SPANS_FILE, json.dumps(spans))

    def _train(self, sample: Sample, num_pairs: int) -> Tokenizer:
        """Train a tokenizer on the cleaned sample.

        Raises:
            UserError: the sample is empty, or does not support the vocabulary's size.
        """
        settings = self.section.tokenizer
        cleaned = make_cleaner(self.section, self.held_out).clean(*sample.finish())
        pairs = list(zip(cleaned.sources, cleaned.targets, strict=True))
        if self.section.cleaning.duplicates == "drop":
            pairs = list(dict.fromkeys(pairs))
        if not pairs:
            raise UserError(
                f"prepare.train: nothing is left of {num_pairs:,} pairs ({sample.num_long:,} too long); look at the "
                "corpus, at prepare.cleaning and at prepare.max_pieces"
            )
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        size = sum(len(line.encode()) for side in (sources, targets) for line in side)
        say(f"training the tokenizer on {len(sources):,} of {num_pairs:,} pairs, {size / 1e6:,.1f} MB of text")
        return train_tokenizer(settings, sources, targets)


def survey(job: SurveyJob, folder: Path, *, apart: bool) -> tuple[list[Span], Tokenizer]:
    """The spans of the corpus and its tokenizer: from an earlier pass in `folder`, else from a new one.

    Args:
        job: the input of the pass.
        folder: for the result; it must not exist before the first pass is done.
        apart: make the pass in a separate process, since the memory of training a tokenizer is not freed.

    Raises:
        UserError: a file is broken, or no tokenizer can be trained on the corpus.
    """
    if not look_again(folder):
        beside = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        list(run_tasks(job.open, [beside], 1, apart=apart))
        sync_folder(beside)
        beside.rename(folder)
    return TypeAdapter(list[Span]).validate_json(read_bytes(folder / SPANS_FILE)), Tokenizer.load(folder)
