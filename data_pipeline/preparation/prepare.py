"""`zeromt prepare`: raw text -> tokenizer, shards and index; the same input gives the same bytes.

A map and a reduce. The corpus is cut into spans; each is cleaned, encoded and scattered at random over the shards
(`encode`, `spill`). Then each shard gathers its pairs, drops duplicates, shuffles and is written (`shards`). So every
shard is a random sample of the corpus in random order, in bounded memory. Each step ends with a rename: interrupted at
any moment and run again, it resumes and produces identical bytes, whatever the number of workers.
"""

import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from configs import PrepareSection, UserError
from configs.corpus import FORMS
from configs.process.files import disk_errors, naming
from configs.process.files.inside import write_text
from configs.process.progress import Progress, say
from data_pipeline.preparation.asking import check_program
from data_pipeline.preparation.cleaning import filters_of
from data_pipeline.preparation.parts import WorkFolderError, check_begun, check_others, damaged_spans
from data_pipeline.preparation.pool import run_tasks
from data_pipeline.preparation.raw import corpus
from data_pipeline.preparation.raw.corpus import corpus_units, read_whole
from data_pipeline.preparation.raw.unit import RawSpan, Span, Unit
from data_pipeline.preparation.recipe import is_already_prepared, make_recipe
from data_pipeline.preparation.report import Report
from data_pipeline.preparation.scoring.commands import score_chunks
from data_pipeline.preparation.scoring.sources import ScoreSources, fields_of, made_by
from data_pipeline.preparation.staging import (
    Input,
    WorkFolder,
    check_disk,
    check_places,
    check_unchanged,
    discard,
    inspect_inputs,
    keep_hashes,
    place_of,
    put_aside,
    remove_partial,
    sync_folder,
)
from data_pipeline.preparation.survey import Survey, SurveyJob, survey
from data_pipeline.preparation.tokenizing import UnknownPiecesError, check_tags, check_unknown, existing_tokenizer
from data_pipeline.preparation.writing.encode import CHUNK_LINES, EncodeJob, make_cleaner
from data_pipeline.preparation.writing.origins import sources_of
from data_pipeline.preparation.writing.spill import DamagedSpanError
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DatasetIndex, HeldOutEntry, HeldOutSplit, TokenType, describe_file
from data_pipeline.tokenizer import Tokenizer

BYTES_A_WORKER = 1 << 22
"""Bytes below which no processes are started, as each takes half a second."""
SMALL_CORPUS = 1 << 30
"""Below this many bytes, spans are smaller, so that processes finish at about the same time."""
LEAST_BLOCK, MOST_BLOCK = 128, 1024
BLOCKS_A_CORPUS = 256


@dataclass(frozen=True, slots=True)
class Part:
    """One of the equal parts of a corpus that machines prepare in parallel: `--part NUMBER/OF`."""

    number: int
    """From 1."""
    of: int


def run(section: PrepareSection, *, part: Part | None = None, merge: bool = False, replaces: bool = False) -> None:
    """Prepare the dataset that a section describes, unless it exists already.

    Args:
        section: what to prepare.
        part: encode only this part, into the work folder next to the output.
        merge: make the dataset from the parts, which must all be there.
        replaces: whether an existing dataset, made from the same corpus with another tokenizer, is put aside when the
            new one is complete.

    Raises:
        UserError: an input is broken, no pair is left, the output cannot be written, another process is preparing it,
            or parts are missing.
    """
    started = time.monotonic()
    with naming("prepare.output"):
        output = place_of(section.output)
    if section.train.is_empty:
        raise UserError(f"prepare.train: no file is named; name source and target, or one of {', '.join(FORMS)}")
    check_places(section, output)
    work = WorkFolder.beside(output)
    inputs = inspect_inputs(section, work.hashes)
    tokenizer = existing_tokenizer(section.tokenizer)
    recipe = make_recipe(section, inputs, tokenizer)
    preparation = Preparation(section, inputs, recipe, tokenizer, made_by(section, inputs))
    with naming("prepare.output"):
        is_there = is_already_prepared(output, recipe, gives_way=replaces)
    if is_there:
        preparation.check_beside_shards(Dataset.load(output))
        _leave_as_it_is(output, work)
        return
    check_others(work, preparation.begun_with, output, is_part=part is not None, merge=merge)
    if not work.root.exists():
        check_disk(output, inputs)
    with work.lock(output, shared=part is not None), disk_errors("prepare.output", output):
        folder = work.of_recipe(preparation.begun_with)
        keep_hashes(inputs, work.hashes)
        if part is None:
            remove_partial(folder)
            if not merge:  # with other settings or plugins it would look for parts that do not exist
                work.remove_others(folder)
        try:
            index = _make(preparation, folder, work, output, part=part, merge=merge)
        except (UnknownPiecesError, WorkFolderError):  # a new attempt goes on from here
            raise
        except UserError:
            # Corrected input or settings make another recipe; what programs have scored stays for the same one.
            if part is None and not merge and not any((folder / "scores").glob("*/*/*.npz")):
                discard(folder)
                if not any(p.is_dir() for p in work.root.iterdir()):
                    work.remove()
            raise
        if index is None:
            return
        put_aside(output)
        (folder / "dataset").rename(output.absolute())
        sync_folder(output.absolute().parent)
        work.remove()
    from data_pipeline.preparation.writing.assembly import print_summary

    print_summary(output, index, time.monotonic() - started)


def _leave_as_it_is(output: Path, work: WorkFolder) -> None:
    pairs = Dataset.load(output).num_pairs
    print(f"{output}: already prepared from the same input, {pairs:,} pairs; nothing to do")
    if work.root.exists():  # left by a preparation that was killed at its very end
        with work.lock(output, shared=False):
            work.remove()


def _make(
    preparation: "Preparation", folder: Path, work: WorkFolder, output: Path, *, part: Part | None, merge: bool
) -> DatasetIndex | None:
    """Run all steps, or those of one part; returns the index of the dataset in `folder`, or None for a part.

    Raises:
        UserError: an input is broken, no pair is left, or parts are missing.
    """
    with work.lock(output, shared=False, name="survey.lock", wait=True):
        check_begun(folder, preparation.begun_with, output)
        job = preparation.begin(folder)
    if part is not None:
        with work.lock(output, shared=False, name=f"part-{part.number}-of-{part.of}.lock"):
            preparation.encode(job, [p for p in job.survey.spans if p.number % part.of == part.number - 1])
        say(f"{output}: part {part.number} of {part.of} is ready; zeromt prepare --merge joins them")
        return None
    if merge:
        _must_be_complete(job, output)
    preparation.encode(job, job.survey.spans)
    try:
        return preparation.finish(job)
    except DamagedSpanError as error:
        raise damaged_spans(job.job.spill_folder(), len(job.survey.spans), output, work, str(error)) from error


@dataclass(frozen=True, slots=True)
class Encoding:
    """The corpus, and its encoding."""

    folder: Path
    survey: Survey
    job: EncodeJob
    held_out: dict[HeldOutSplit, HeldOutEntry]
    pairs_per_block: int

    @property
    def dataset(self) -> Path:
        """Becomes the output."""
        return self.folder / "dataset"


@dataclass(frozen=True, slots=True)
class Preparation:
    """The steps of a preparation; each resumes where an earlier one was."""

    section: PrepareSection
    inputs: list[Input]
    recipe: dict[str, Any]
    tokenizer: Tokenizer | None
    scores: dict[str, dict[str, Any]]
    """What makes each score of the pairs."""

    @property
    def begun_with(self) -> dict[str, Any]:
        """What determines the work: the recipe, with all scores and what is said of sources, which decide no shard."""
        said = {name: given for name in ("licence", "attribution") if (given := getattr(self.section.train, name))}
        return self.recipe | ({"scores": self.scores} if self.scores else {}) | ({"sources": said} if said else {})

    def check_beside_shards(self, dataset: Dataset) -> None:
        """Refuse a dataset of this recipe that has not the section's scores, licences and attributions.

        Raises:
            UserError: naming the score.
        """
        for name, made in self.scores.items():
            is_there = name in dataset.scores()
            if not is_there or dataset.score_entry(name).made_by != made:
                which = "with another" if is_there else "without the"
                raise UserError(
                    f"prepare.output: {dataset.location} holds this dataset {which} score {name}; remove it, or choose "
                    "another prepare.output"
                )

        was = [dataclasses.replace(entry, pairs=0) for entry in dataset.index.sources or ()]
        if (sources_of(self.section) or []) != was:
            raise UserError(
                f"prepare.train.licence: {dataset.location} holds this dataset with another licence or attribution; "
                "remove it, or choose another prepare.output"
            )

    def begin(self, folder: Path) -> Encoding:
        """Write the held-out sets, count the corpus and train the tokenizer."""
        section = self.section
        sets = read_held_out(section)
        is_needed = any(filter_.needs_held_out for filter_ in filters_of(section).values())
        held_out = [pair for pairs in sets.values() for pair in pairs] if is_needed else []
        for name, command in section.scores.items():
            check_program(command.command, f"prepare.scores.{name}.command")
        make_cleaner(section, held_out)  # so that errors in its settings are found before any long work
        tag = section.target_tag
        entries = {s: write_held_out(s, pairs, folder / "dataset", target_tag=tag) for s, pairs in sets.items()}
        fields = fields_of(section)
        units = corpus_units(section.train, section.root, fields, languages=section.languages)
        large = self._num_bytes() > SMALL_CORPUS
        first_pass = SurveyJob(
            section=section,
            units=units,
            held_out=held_out,
            tokenizer_files=self.tokenizer.files() if self.tokenizer else None,
            span_pairs=corpus.SPAN_PAIRS if large else corpus.SPAN_PAIRS // 4,
        )
        apart = self.tokenizer is None and self._num_bytes() > BYTES_A_WORKER
        surveyed = survey(first_pass, folder / "survey", apart=apart)
        tokenizer = surveyed.tokenizer
        check_tags(section, tokenizer)
        pairs_per_block = section.pairs_per_block or min(
            MOST_BLOCK, max(LEAST_BLOCK, surveyed.num_pairs // BLOCKS_A_CORPUS)
        )
        job = EncodeJob(
            section=section,
            units=units,
            tokenizer_files=tokenizer.files(),
            held_out=held_out,
            dtype=_token_dtype(tokenizer),
            spill=folder / "spill",
            num_shards=max(1, -(-surveyed.num_pairs // (pairs_per_block * section.blocks_per_shard))),
            scores=ScoreSources(list(section.train.scores), list(section.scores), folder / "scores"),
        )
        return Encoding(folder, surveyed, job, entries, pairs_per_block)

    def _score(self, encoding: Encoding, missing: set[int]) -> None:
        """Let commands score the pairs of these spans, but for those that they have scored already."""
        job = encoding.job
        total = sum(span.pairs for span in encoding.survey.spans if span.number in missing)
        for name, command in self.section.scores.items():
            with Progress(f"scoring by {name}", total) as progress:
                spans = (
                    (job.units[span.unit].read(span) if raw is None else raw, span.unit)
                    for span, raw in _tasks(job.units, encoding.survey.spans, missing)
                )
                chunks = ((text, unit) for raw, unit in spans for text in raw.chunks(CHUNK_LINES))
                score_chunks(command, name, job.scores, chunks, progress.advance)

    def encode(self, encoding: Encoding, spans: list[Span]) -> None:
        """The map step, for those of `spans` that are not encoded yet."""
        missing = set(encoding.job.spill_folder().missing(span.number for span in spans))
        self._score(encoding, missing)
        workers = self._num_workers(len(missing))
        if workers > 1:  # webdataset imports torch, which takes seconds; this process only waits meanwhile
            shards = "data_pipeline.preparation.writing.shards"
            threading.Thread(target=import_module, args=[shards], daemon=True).start()
        total = sum(span.pairs for span in spans)
        done = sum(span.pairs for span in spans if span.number not in missing)
        with Progress("encoding", total, done) as progress:
            tasks = _tasks(encoding.job.units, encoding.survey.spans, missing)
            for num_read in run_tasks(encoding.job, tasks, workers):
                progress.advance(num_read)
        check_unchanged(self.inputs)

    def finish(self, encoding: Encoding) -> DatasetIndex:
        """The reduce step, and the index."""
        # These import webdataset, and through it torch.
        from data_pipeline.preparation.writing.assembly import write_index
        from data_pipeline.preparation.writing.shards import ShardJob

        spill = encoding.job.spill_folder()
        num_spans = len(encoding.survey.spans)
        report = Report.empty()
        for span in range(num_spans):
            report = report.merge(spill.report(span))
        check_unknown(self.section, report)
        spill.collect_segments(num_spans)
        job = ShardJob(
            encoding=encoding.job,
            folder=encoding.dataset,
            tables=encoding.folder / "tables",
            pairs_per_block=encoding.pairs_per_block,
        )
        num_shards = encoding.job.num_shards
        missing = [shard for shard in range(num_shards) if not job.is_complete(shard)]
        workers = min(self._num_workers(len(missing)), -(-len(missing) // 4)) or 1  # each process imports torch
        with Progress("writing", encoding.survey.num_pairs) as progress:
            for num_pairs in run_tasks(job, missing, workers):
                progress.advance(num_pairs)
        index = write_index(job, num_shards, report, held_out=encoding.held_out, recipe=self.recipe, scores=self.scores)
        sync_folder(encoding.dataset)
        return index

    def _num_workers(self, num_tasks: int) -> int:
        workers = self.section.workers
        if not workers:
            workers = min(len(os.sched_getaffinity(0)), self._num_bytes() // BYTES_A_WORKER)
        return max(1, min(workers, num_tasks))

    def _num_bytes(self) -> int:
        return sum(file.bytes for file in self.inputs if file.split == "train")


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


def _must_be_complete(encoding: Encoding, output: Path) -> None:
    """Raise unless every part was prepared.

    Raises:
        UserError: naming the missing spans.
    """
    missing = encoding.job.spill_folder().missing(span.number for span in encoding.survey.spans)
    if missing:
        raise UserError(
            f"prepare.output: {output}: {len(missing)} of {len(encoding.survey.spans)} spans of the corpus are not "
            f"encoded yet (the first is number {missing[0]}); run the missing --part, or without --merge"
        )


def _token_dtype(tokenizer: Tokenizer) -> TokenType:
    return "uint16" if max(tokenizer.source_vocab_size, tokenizer.target_vocab_size) <= 65_536 else "uint32"


HELD_OUT: tuple[HeldOutSplit, ...] = ("valid", "test")

Pairs = list[tuple[str, str]]


def read_held_out(section: PrepareSection) -> dict[HeldOutSplit, Pairs]:
    """The pairs of each set that the section names.

    Raises:
        UserError: a file is broken.
    """
    files = {split: section.valid if split == "valid" else section.test for split in HELD_OUT}
    languages = section.source_language, section.target_language
    return {
        split: list(zip(*read_whole(corpus, section.root, languages), strict=True))
        for split, corpus in files.items()
        if not corpus.is_empty
    }


def write_held_out(split: HeldOutSplit, pairs: Pairs, folder: Path, *, target_tag: str | None) -> HeldOutEntry:
    """Store a set as text, one line each; the sources with the dataset's tag."""
    tag = f"{target_tag} " if target_tag else ""
    paths = [folder / f"{split}.{side}.txt" for side in ("source", "target")]
    for path, lines in zip(paths, ([tag + s for s, _ in pairs], [t for _, t in pairs]), strict=True):
        write_text(path, "".join(f"{line}\n" for line in lines))
    return HeldOutEntry(source=describe_file(paths[0]), target=describe_file(paths[1]), lines=len(pairs))
