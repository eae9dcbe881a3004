"""`zeromt translate`: lines in, lines out, in order, in bounded memory, in one process or several."""

import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch

from configs import SearchSection, UserError, load_run
from data_pipeline.preparation.progress import Progress
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.format import CONFIG
from trainer.heat_map import draw
from trainer.loading import check_same_tokenizer, find_checkpoint
from trainer.process import tune_process
from trainer.translation.job import Answer, Chunk, Job, Line, Settings
from trainer.translation.languages import language_tags
from trainer.translation.pool import Pool
from trainer.translation.words import Attention

CHUNK_LINES = 2048
"""Lines read, sorted by length and translated at once."""
PICTURED_LINES = 4
"""Lines whose attention is drawn."""


def run(
    *,
    run: str,
    ensemble: list[str],
    raw_weights: bool,
    source_language: str | None,
    target_language: str | None,
    input: str | None,
    output: str | None,
    search: Mapping[str, Any],
    n_best: int,
    score: bool,
    target: str | None,
    prefix: str | None,
    alignment: str | None,
    alignment_layer: int | None,
    attention: str | None,
    processes: int | None,
) -> int:
    """Translate a file, or standard input, line by line.

    With `n_best` above 1 every line gives that many, as `line number <TAB> score <TAB> translation`, numbered from 0.
    With `score` every line gives the log-probability of its given translation and that over the length penalty.

    Args:
        ensemble: further runs, whose probabilities are averaged with those of `run`.
        raw_weights: not their moving averages, where they have such.
        source_language, target_language: of models that have tags on both sides; the run's unless given.
        search: fields of the run's search section to replace.
        target, prefix: files beside the input, with given translations and with what translations begin with.
        alignment, attention: files to write; `attention` a picture.
        processes: None for one on each GPU or core.

    Raises:
        UserError: a run, a file or an option is wrong.
    """
    tune_process()
    _check_options(n_best=n_best, score=score, target=target, prefix=prefix)
    checkpoints = [find_checkpoint(Path(name)).folder for name in (run, *ensemble)]
    check_same_tokenizer(checkpoints)
    config = load_run(str(checkpoints[0] / CONFIG))
    section = search_section(config.evaluation.search, search)
    if n_best > section.beam and not section.sample:
        raise UserError(f"--n-best: {n_best} with --beam {section.beam}; allowed is at most the beam")
    if alignment_layer is not None and alignment_layer > config.model.decoder_layers:
        raise UserError(f"--alignment-layer: {alignment_layer}; allowed is 1 to {config.model.decoder_layers}")
    settings = Settings(
        checkpoints=[str(folder) for folder in checkpoints],
        raw_weights=raw_weights,
        tags=language_tags(
            config.prepare, Tokenizer.load(checkpoints[0]), source=source_language, target=target_language
        ),
        section=section,
        n_best=n_best,
        with_alignment=alignment is not None,
        alignment_layer=alignment_layer,
        num_pictures=PICTURED_LINES if attention is not None else 0,
    )
    with contextlib.ExitStack() as stack:
        chunks = _chunks(stack, input, target, prefix, is_scored=score)
        sink = stack.enter_context(_open_output(output))
        alignments = stack.enter_context(_open(alignment, "--alignment")) if alignment is not None else None
        answers = _answers(stack, settings, processes, chunks)
        progress = stack.enter_context(Progress("translating", unit="lines", is_quiet=_is_shown(output)))
        num_truncated = _write(answers, sink, alignments, attention, progress, n_best=n_best, is_scored=score)
    if num_truncated:
        print(
            f"zeromt: {num_truncated} lines were longer than model.max_positions="
            f"{config.model.max_positions} pieces and lost their end",
            file=sys.stderr,
        )
    return 0


def search_section(section: SearchSection, given: Mapping[str, Any]) -> SearchSection:
    """The run's own settings of the search with those of the command line in their place.

    Raises:
        UserError: they contradict each other.
    """
    if given.get("sample") and "beam" not in given:
        given = {**given, "beam": 1}
    changed = dataclasses.replace(section, **given)
    for problem in changed.problems():
        name, _, rest = problem.partition(":")
        raise UserError(f"--{name.replace('_', '-')}:{rest}")
    return changed


def _check_options(*, n_best: int, score: bool, target: str | None, prefix: str | None) -> None:
    if target is not None and not score:
        raise UserError("--target: given without --score; allowed is both")
    if score and n_best > 1:
        raise UserError(f"--n-best: {n_best} with --score; allowed is 1")
    if score and prefix is not None:
        raise UserError("--prefix: given with --score; allowed is one of them")


def _answers(
    stack: contextlib.ExitStack, settings: Settings, processes: int | None, chunks: Iterable[Chunk]
) -> Iterator[Answer]:
    """What becomes of each chunk, in order, worked out here or in other processes."""
    num_gpus = torch.cuda.device_count()
    count = processes if processes is not None else num_gpus or len(os.sched_getaffinity(0))
    if count == 1:
        job = Job(settings)
        return (job.do(chunk) for chunk in chunks)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if os.environ.get("CUDA_VISIBLE_DEVICES") else None
    gpus = visible or [str(i) for i in range(num_gpus)]
    pool = Pool(settings, [gpus[i % len(gpus)] if num_gpus else None for i in range(count)])
    stack.callback(pool.close)
    return pool.answers(chunks)


def _write(
    answers: Iterator[Answer],
    sink: IO[str],
    alignments: IO[str] | None,
    attention: str | None,
    progress: Progress,
    *,
    n_best: int,
    is_scored: bool,
) -> int:
    """Write what becomes of the lines; gives the number of those that lost their end."""
    number, num_truncated = 0, 0
    for answer in answers:
        lines = [line for line in answer.lines if line is not None]
        for line in lines:
            sink.writelines(_render(number, line, n_best, is_scored=is_scored))
            if alignments is not None:
                # a score of NaN has no alignment
                alignments.writelines(f"{text}\n" for text in line.alignments or [""])
            number += 1
        pictured = [line.attention for line in lines if line.attention is not None]
        if attention is not None and pictured:
            _save_picture(attention, pictured)
            attention = None
        num_truncated += answer.num_truncated
        sink.flush()
        progress.advance(len(lines))
    return num_truncated


def _render(number: int, line: Line, n_best: int, *, is_scored: bool) -> Iterator[str]:
    for t in line.translations:
        if is_scored:
            yield f"{t.log_prob:.4f}\t{t.score:.4f}\n"
        elif n_best > 1:
            yield f"{number}\t{t.score:.4f}\t{t.text}\n"
        else:
            yield f"{t.text}\n"


def _save_picture(name: str, pictured: list[Attention]) -> None:
    try:
        draw(pictured).save(name, format="PNG")
    except OSError as error:
        raise UserError(f"--attention: {name!r} cannot be written: {error.strerror}") from error


def _chunks(
    stack: contextlib.ExitStack, input: str | None, target: str | None, prefix: str | None, *, is_scored: bool
) -> Iterator[Chunk]:
    """The input in chunks; its files are opened at once."""
    name = input or "standard input"
    source = stack.enter_context(_open_input(input, "--input"))
    beside, option = (target, "--target") if target is not None else (prefix, "--prefix")
    if beside is None:
        return _cut(_lines(source, name), name, is_scored=is_scored)
    pairs = _paired(_lines(source, name), _lines(stack.enter_context(_open_input(beside, option)), beside), option)
    return _cut_pairs(pairs, is_scored=is_scored)


def _cut(lines: Iterator[str], name: str, *, is_scored: bool) -> Iterator[Chunk]:
    """Chunks of lines; to be scored, each holds source and translation."""
    if is_scored:
        yield from _cut_pairs((_split(line, name, i) for i, line in enumerate(lines, start=1)), is_scored=True)
        return
    for first in itertools.count(0, CHUNK_LINES):
        if not (chunk := list(itertools.islice(lines, CHUNK_LINES))):
            return
        yield Chunk(first=first, sources=chunk)


def _cut_pairs(pairs: Iterator[tuple[str, str]], *, is_scored: bool) -> Iterator[Chunk]:
    """Chunks of sources with what stands beside them: translations to score, or prefixes."""
    for first in itertools.count(0, CHUNK_LINES):
        if not (chunk := list(itertools.islice(pairs, CHUNK_LINES))):
            return
        sources, beside = [s for s, _ in chunk], [b for _, b in chunk]
        yield Chunk(
            first=first,
            sources=sources,
            targets=beside if is_scored else None,
            prefixes=None if is_scored else beside,
        )


def _split(line: str, name: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise UserError(f"{name}: line {number} has {line.count(chr(9))} tabs; allowed is source TAB translation")
    return source, target


def _paired(lines: Iterator[str], others: Iterator[str], option: str) -> Iterator[tuple[str, str]]:
    for number, (line, other) in enumerate(itertools.zip_longest(lines, others), start=1):
        if line is None or other is None:
            few, many = ("the input", "this file") if line is None else ("this file", "the input")
            raise UserError(f"{option}: {few} ends before line {number} of {many}; allowed is a line for each")
        yield line, other


def _lines(source: IO[bytes], name: str) -> Iterator[str]:
    """Lines end at a line feed alone, so that what comes out has as many."""
    for number, raw in enumerate(source, start=1):
        try:
            yield raw.decode("utf-8").rstrip("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}: line {number} is not UTF-8") from error


def _open_input(name: str | None, option: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if name is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise UserError(f"{option}: {name!r} cannot be read: {error.strerror}") from error


def _open_output(name: str | None) -> contextlib.AbstractContextManager[IO[str]]:
    if name is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        return contextlib.nullcontext(sys.stdout)
    return _open(name, "--output")


def _open(name: str, option: str) -> IO[str]:
    try:
        return Path(name).open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"{option}: {name!r} cannot be written: {error.strerror}") from error


def _is_shown(output: str | None) -> bool:
    """Whether the translations go to the terminal themselves."""
    return output is None and os.isatty(1)
