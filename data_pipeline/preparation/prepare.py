"""`zeromt prepare`: raw text -> tokenizer, shards and index; the same input gives the same bytes.

A map and a reduce. The corpus is cut into spans; each is cleaned, encoded and scattered at random over the shards
(`spans`). Then each shard gathers its pairs, drops duplicates, shuffles and is written (`shards`). So every shard is a
random sample of the corpus in random order, in bounded memory. Each step ends with a rename: interrupted at any moment
and run again, it resumes and produces identical bytes, whatever the number of workers.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs import PrepareSection, UserError
from configs.process.files import disk_errors, naming, put_aside
from configs.process.files.inside import is_listed, look_again, write_text
from configs.process.progress import Progress, say
from data_pipeline.preparation import corpus
from data_pipeline.preparation.cleaning import DUPLICATE, filters_of
from data_pipeline.preparation.corpus import RawSpan, Span, Unit, corpus_units, read_whole
from data_pipeline.preparation.pool import run_tasks
from data_pipeline.preparation.programs import ScoreSources, check_program, fields_of, score_chunks
from data_pipeline.preparation.recipe import is_already_prepared, make_recipe
from data_pipeline.preparation.report import Report, describe
from data_pipeline.preparation.shards import ShardJob, write_dataset
from data_pipeline.preparation.spans import CHUNK_LINES, EncodeJob, make_cleaner
from data_pipeline.preparation.staging import (
    DISCARDED,
    Input,
    WorkFolder,
    check_places,
    check_unchanged,
    inspect_inputs,
    place_of,
    remove_partial,
    sync_folder,
)
from data_pipeline.preparation.survey import SurveyJob, survey
from data_pipeline.preparation.tokenizing import check_tags, check_unknown, existing_tokenizer
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import INDEX_FILE, HeldOutEntry, describe_file
from data_pipeline.tokenizer import Tokenizer

BYTES_A_WORKER = 1 << 22
"""Bytes below which no processes are started, as each takes half a second."""
SMALL_CORPUS = 1 << 30
"""Below this many bytes, spans are smaller, so that processes finish at about the same time."""
LEAST_BLOCK, MOST_BLOCK = 128, 1024
BLOCKS_A_CORPUS = 256
WIDE = 65_536
"""Pieces of a vocabulary beyond which ids take four bytes."""
RECIPE_FILE = "recipe.json"


class Part(NamedTuple):
    """One of the equal parts of a corpus that machines prepare in parallel: `--part NUMBER/OF`."""

    number: int
    """From 1."""
    of: int


def run(section: PrepareSection, *, part: Part | None = None, merge: bool = False, replace: bool = False) -> None:
    """Prepare the dataset that a section describes, unless it exists already.

    Args:
        section: what to prepare.
        part: encode only this part, into the work folder next to the output.
        merge: make the dataset from the parts, which must all be there.
        replace: rename another dataset that is at the output.

    Raises:
        UserError: an input is broken, no pair is left, the output cannot be written, another process is preparing it,
            or parts are missing.
    """
    started = time.monotonic()
    with naming("prepare.output"):
        output = place_of(section.output)
    if section.train.is_empty:
        raise UserError("prepare.train: no file is named; name source and target, or files and their reader")
    check_places(section, output)
    work = WorkFolder.beside(output)
    inputs = inspect_inputs(section)
    tokenizer = existing_tokenizer(section.tokenizer)
    recipe = make_recipe(section, inputs, tokenizer)
    with naming("prepare.output"):
        try:
            is_there = is_already_prepared(output, recipe)
        except UserError:
            if not (replace and (output / INDEX_FILE).is_file()):
                raise
            put_aside(output, "--replace")
            is_there = False
    if is_there:
        pairs = Dataset.load(output).num_pairs
        print(f"{output}: already prepared from the same input, {pairs:,} pairs; nothing to do")
        if work.root.exists():  # left by a preparation that was killed at its very end
            with work.lock(output, shared=False):
                work.remove()
        return
    folder = work.folder_of(recipe)
    _check_others(work, folder, output, part=part, merge=merge)
    with work.lock(output, shared=part is not None), disk_errors("prepare.output", output):
        (folder / "dataset").mkdir(parents=True, exist_ok=True)
        write_text(folder / RECIPE_FILE, json.dumps(recipe))
        if part is None:
            remove_partial(folder)
            if not merge:
                work.remove_others(folder)
        preparation = Preparation(section, inputs, recipe, tokenizer, folder)
        with work.lock(output, shared=False, name="survey.lock", wait=True):
            encoding = preparation.begin()
        spans = encoding.spans
        if part is not None:
            preparation.encode(encoding, [span for span in spans if span.number % part.of == part.number - 1])
            say(f"{output}: part {part.number} of {part.of} is ready; zeromt prepare --merge joins them")
            return
        if merge and (missing := encoding.job.missing(spans)):
            raise UserError(
                f"prepare.output: {output}: {len(missing)} of {len(spans)} spans of the corpus are not encoded yet "
                f"(the first is number {missing[0].number}); run the missing --part, or without --merge"
            )
        preparation.encode(encoding, spans)
        report = preparation.finish(encoding)
        (folder / "dataset").rename(output.absolute())
        sync_folder(output.absolute().parent)
        work.remove()
    _print_summary(output, report, time.monotonic() - started)


def _check_others(work: WorkFolder, folder: Path, output: Path, *, part: Part | None, merge: bool) -> None:
    """Say that a work folder has work of other recipes, and what becomes of that work. A merge needs its own.

    Raises:
        UserError: there is nothing to merge.
    """
    look_again(folder)
    if merge and not is_listed(folder / RECIPE_FILE):
        raise UserError(
            f"prepare.output: {output}: no part is prepared with these settings; run each --part with the settings of "
            "the merge, overrides included"
        )
    others = [path.parent for path in work.root.glob("*/span-*.npz")]
    if not merge and any(other != folder and not other.name.startswith(DISCARDED) for other in others):
        then = "is removed" if part is None else "is not merged with this part"
        say(f"zeromt: warning: {work.root} has work of other settings, which {then}", file=sys.stderr)


class Encoding(NamedTuple):
    """The corpus, and its encoding."""

    spans: list[Span]
    job: EncodeJob
    held_out: dict[str, HeldOutEntry]


class Preparation(NamedTuple):
    """The steps of a preparation; each resumes where an earlier one was."""

    section: PrepareSection
    inputs: list[Input]
    recipe: dict[str, Any]
    tokenizer: Tokenizer | None
    folder: Path

    def begin(self) -> Encoding:
        """Write the held-out sets, count the corpus and train the tokenizer."""
        section = self.section
        entries, pairs = _write_held_out(section, self.folder / "dataset")
        is_needed = any(filter_.needs_held_out for filter_ in filters_of(section).values())
        held_out = pairs if is_needed else []
        for name, command in section.scores.items():
            check_program(command.command, f"prepare.scores.{name}.command")
        make_cleaner(section, held_out)  # so that errors in its settings are found before any long work
        units = corpus_units(section.train, section.root, fields_of(section), languages=section.languages)
        large = self._num_bytes() > SMALL_CORPUS
        first_pass = SurveyJob(
            section=section,
            units=units,
            held_out=held_out,
            tokenizer_files=self.tokenizer.files() if self.tokenizer else None,
            span_pairs=corpus.SPAN_PAIRS if large else corpus.SPAN_PAIRS // 4,
        )
        apart = self.tokenizer is None and self._num_bytes() > BYTES_A_WORKER
        spans, tokenizer = survey(first_pass, self.folder / "survey", apart=apart)
        check_tags(section, tokenizer)
        pairs_per_shard = self._pairs_per_block(spans) * section.blocks_per_shard
        job = EncodeJob(
            section=section,
            units=units,
            tokenizer_files=tokenizer.files(),
            held_out=held_out,
            dtype="uint32" if max(tokenizer.source_vocab_size, tokenizer.target_vocab_size) > WIDE else "uint16",
            folder=self.folder,
            num_shards=max(1, -(-_num_pairs(spans) // pairs_per_shard)),
            scores=ScoreSources(list(section.train.scores), list(section.scores), self.folder / "scores"),
        )
        return Encoding(spans, job, entries)

    def encode(self, encoding: Encoding, spans: list[Span]) -> None:
        """The map step, for those of `spans` that are not encoded yet."""
        job, missing = encoding.job, encoding.job.missing(spans)
        numbers = {span.number for span in missing}
        pairs = _num_pairs(missing)
        for name, command in self.section.scores.items():
            with Progress(f"scoring by {name}", pairs) as progress:
                chunks = (
                    (text, span.unit)
                    for span, raw in _tasks(job.units, encoding.spans, numbers)
                    for text in (raw or job.units[span.unit].read(span)).chunks(CHUNK_LINES)
                )
                score_chunks(command, name, job.scores, chunks, progress.advance)
        total = _num_pairs(spans)
        with Progress("encoding", total, total - pairs) as progress:
            tasks = _tasks(job.units, encoding.spans, numbers)
            for num_read in run_tasks(job.open, tasks, self._num_workers(len(missing))):
                progress.advance(num_read)
        check_unchanged(self.inputs)

    def finish(self, encoding: Encoding) -> Report:
        """The reduce step, and the index; returns the report."""
        num_spans = len(encoding.spans)
        report = Report()
        for span in range(num_spans):
            report = report.merge(encoding.job.report(span))
        check_unknown(self.section, report)
        block = self._pairs_per_block(encoding.spans)
        job = ShardJob(encoding=encoding.job, num_spans=num_spans, pairs_per_block=block)
        missing = job.missing()
        workers = min(self._num_workers(len(missing)), -(-len(missing) // 4)) or 1  # each process imports torch
        with Progress("writing", _num_pairs(encoding.spans)) as progress:
            for num_pairs in run_tasks(job.open, missing, workers):
                progress.advance(num_pairs)
        if self.section.cleaning.duplicates == "drop":
            report = report.merge(Report(dropped={DUPLICATE: int(sum(job.noted("duplicates")))}))
        write_dataset(job, report, encoding.held_out, self.recipe)
        sync_folder(job.dataset)
        return report

    def _pairs_per_block(self, spans: list[Span]) -> int:
        by_size = min(MOST_BLOCK, max(LEAST_BLOCK, _num_pairs(spans) // BLOCKS_A_CORPUS))
        return self.section.pairs_per_block or by_size

    def _num_workers(self, num_tasks: int) -> int:
        workers = self.section.workers
        if not workers:
            workers = min(len(os.sched_getaffinity(0)), self._num_bytes() // BYTES_A_WORKER)
        return max(1, min(workers, num_tasks))

    def _num_bytes(self) -> int:
        return sum(file.bytes for file in self.inputs if file.split == "train")


def _num_pairs(spans: list[Span]) -> int:
    return sum(span.pairs for span in spans)


def _tasks(units: Sequence[Unit], spans: list[Span], wanted: set[int]) -> Iterator[tuple[Span, RawSpan | None]]:
    """The spans to encode; those of files that are not seekable come with their text."""
    for number, unit in enumerate(units):
        own = [span for span in spans if span.unit == number and span.number in wanted]
        if unit.is_seekable:
            yield from ((span, None) for span in own)
        elif own:
            there = [span for span in spans if span.unit == number]
            most = max(span.pairs for span in there)  # a span of long lines has fewer
            for span, raw in unit.stream(number, there[0].number, most):
                if span.number in wanted:
                    yield span, raw
                if span.number == own[-1].number:
                    break


def _write_held_out(section: PrepareSection, folder: Path) -> tuple[dict[str, HeldOutEntry], list[tuple[str, str]]]:
    """Store the sets that the section names as text, one line each; their entries, and all their pairs.

    Raises:
        UserError: a file is broken.
    """
    entries: dict[str, HeldOutEntry] = {}
    pairs: list[tuple[str, str]] = []
    tag = f"{section.target_tag} " if section.target_tag else ""
    for split, files in (("valid", section.valid), ("test", section.test)):
        if files.is_empty:
            continue
        sources, targets = read_whole(files, section.root, section.languages)
        paths = [folder / f"{split}.source.txt", folder / f"{split}.target.txt"]
        write_text(paths[0], "".join(f"{tag}{line}\n" for line in sources))
        write_text(paths[1], "".join(f"{line}\n" for line in targets))
        source, target = map(describe_file, paths)
        entries[split] = HeldOutEntry(source=source, target=target, lines=len(sources))
        pairs += zip(sources, targets, strict=True)
    return entries, pairs


def _print_summary(output: Path, report: Report, seconds: float) -> None:
    """Print what was prepared, and what the filters did."""
    dataset = Dataset.load(output)
    print(f"{output}: prepared in {seconds:.1f} s")
    for line in describe(dataset, report):
        print(f"  {line}")
    if not dataset.index.held_out:
        print("  no validation set (prepare.valid): training will report its loss alone")
