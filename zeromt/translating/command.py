"""`zeromt translate`: lines in, lines out, in order, in bounded memory, in one process or several."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import torch

from configs import RunConfig, SearchSection, UserError, load_saved
from configs.components import make
from configs.process.environment import restored_environment
from configs.process.files import check_apart
from configs.process.files.inside import written
from configs.process.progress import Progress
from configs.process.streams import tell
from data_pipeline.tokenizer import Tokenizer
from model.parts import Sampler
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import check_same_tokenizer, places_of, with_checkpoints
from trainer.inference.translation.languages import language_tags
from trainer.inference.translation.sources import SourceCounts, expects_tag
from trainer.ranks.process import tune_process
from trainer.runs.layout import CONFIG
from zeromt.translating.lines import count_lines, read_chunks
from zeromt.translating.mbr import Utility, ranked
from zeromt.translating.paragraphs import with_paragraphs
from zeromt.translating.parsing import parse_option
from zeromt.translating.pool import Pool
from zeromt.translating.undoing import with_undoing
from zeromt.translating.worker import Answer, Line, Settings, Work, Worker


@restored_environment()
def run(
    *,
    run: str,
    ensemble: list[str],
    raw_weights: bool,
    precision: str | None,
    source_language: str | None,
    target_language: str | None,
    input: str | None,
    output: str | None,
    search: Mapping[str, Any],
    n_best: int,
    candidates: int,
    mbr: Utility | None,
    score: bool,
    target: str | None,
    prefix: str | None,
    processes: int | None,
    paragraphs: bool,
) -> int:
    """Translate a file, or standard input, line by line.

    With `n_best` above 1 there are that many output lines per input line: `line number <TAB> score <TAB> translation`,
    numbered from 0. With `score` each output line has the log-probability of the given translation, and this over the
    length penalty.

    Args:
        ensemble: further runs, whose probabilities are averaged with those of `run`.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: auto, fp32, bf16 or fp16; None for fp32 on a CPU and the run's on a GPU.
        source_language, target_language: of models that have tags on both sides; the run's unless given.
        search: fields of the run's search section to replace.
        candidates, mbr: translations of a line, of which the one most like all of them is written.
        target, prefix: files parallel to the input: translations to score, and prefixes of translations.
        processes: None for one on each GPU or core.
        paragraphs: translate each sentence of a line by itself.

    Raises:
        UserError: a run, a file or an option is wrong.
    """
    tune_process()
    _check_mbr(candidates, mbr, n_best=n_best, others={"--score": score})
    _check_options(n_best=n_best, score=score, target=target, prefix=prefix)
    if paragraphs:
        _check_paragraphs({"--score": score, "--prefix": prefix})
    check_apart(
        {**_named(input=input, target=target, prefix=prefix), **places_of((run, *ensemble))},
        _named(output=output),
    )
    of_line = max(n_best, candidates)
    given = {"raw_weights": raw_weights, "precision": precision, "n_best": of_line}
    languages = {"source": source_language, "target": target_language}
    with contextlib.ExitStack() as stack:
        chunks = read_chunks(stack, input, target, prefix, is_scored=score)
        lines = stack.enter_context(_open_output(output))
        work, tokenizer, config, checkpoint = with_checkpoints(
            (run, *ensemble), lambda checkpoints: _load(stack, checkpoints, processes, search, languages, given)
        )
        work = with_mbr(work, mbr)
        work = work if score or prefix is not None else with_undoing(work, config)
        work = with_paragraphs(work, tokenizer) if paragraphs else work
        progress = _progress(stack, input, output)
        counts = _write(work(chunks, progress.advance), lines, progress, n_best=n_best, is_scored=score)
    warn(counts, tokenizer, config, checkpoint)
    return 0


def _load(
    stack: contextlib.ExitStack,
    checkpoints: Sequence[Checkpoint],
    processes: int | None,
    search: Mapping[str, Any],
    languages: Mapping[str, str | None],
    given: Mapping[str, Any],
) -> tuple[Work, Tokenizer, RunConfig, Checkpoint]:
    """The translator with its models loaded, and the first checkpoint with its configuration and tokenizer.

    Args:
        stack: closes the translator.
        checkpoints: of the ensemble.
        sinks: the open outputs.
        processes: as `search`, see `run`.
        search: see there.
        languages: by side.
        given: further fields of `Settings`.
    """
    check_same_tokenizer([checkpoint.folder for checkpoint in checkpoints])
    config = load_saved(checkpoints[0].folder / CONFIG)
    tokenizer = Tokenizer.load(checkpoints[0].folder)
    settings = Settings(
        checkpoints=[str(checkpoint.folder) for checkpoint in checkpoints],
        tags=language_tags(config.prepare, tokenizer, **languages),
        section=search_section(config.evaluation.search, search),
        **given,
    )
    check_settings(settings, config)
    return start_work(stack, settings, processes), tokenizer, config, checkpoints[0]


def search_section(section: SearchSection, given: Mapping[str, Any]) -> SearchSection:
    """The run's search settings, overridden by those of the command line.

    Raises:
        UserError: they contradict each other.
    """
    given = dict(given)
    sampler = _sampler(section.sampler, given)
    if sampler is not None and section.sampler is None and "beam" not in given:
        given["beam"] = 1
    changed = dataclasses.replace(section, **given, sampler=sampler)
    for problem in changed.problems():
        name, _, rest = problem.partition(":")
        raise UserError(f"--{name.replace('_', '-')}:{rest}")
    return changed


def _sampler(sampler: Sampler | None, given: dict[str, Any]) -> Sampler | None:
    """The run's sampler, overridden by the command line's settings for it, which are removed from `given`.

    Raises:
        UserError: the run has no sampler to change, or it has no such field.
    """
    named, is_wanted = given.pop("sampler", None), given.pop("sample", False)
    if named is not None:
        section: SearchSection = parse_option("--sampler", [f"sampler={named}"], SearchSection)
        sampler = section.sampler
    elif is_wanted and sampler is None:
        sampler = make("sampler", "truncated")
    fields = {name: given.pop(name) for name in ("temperature", "top_k", "top_p", "epsilon") if name in given}
    for name, value in fields.items():
        option = f"--{name.replace('_', '-')}: {value}"
        if sampler is None:
            raise UserError(f"{option} without --sample; give both")
        if name not in {field.name for field in dataclasses.fields(sampler)}:
            raise UserError(f"{option} with the sampler {sampler.kind}, which has no such field; leave it out")
    return sampler if sampler is None else dataclasses.replace(sampler, **fields)


def _check_options(*, n_best: int, score: bool, target: str | None, prefix: str | None) -> None:
    if target is not None and not score:
        raise UserError("--target: given without --score; give both")
    if score and n_best > 1:
        raise UserError(f"--n-best: {n_best} with --score; allowed is 1")
    if score and prefix is not None:
        raise UserError("--prefix: given with --score; give one of them")


def _check_paragraphs(others: Mapping[str, object]) -> None:
    for option, value in others.items():
        if value:
            raise UserError(f"--paragraphs: given with {option}, which is about lines; give one of them")


def _check_mbr(candidates: int, mbr: Utility | None, *, n_best: int, others: Mapping[str, object]) -> None:
    if mbr is None and candidates > 1:
        raise UserError(f"--candidates: {candidates} without --mbr or --part; give one of them, or --n-best")
    if mbr is None:
        return
    if candidates == 1:
        raise UserError(f"--mbr: {mbr} with one candidate; give --candidates 16 or more, and --sample --epsilon 0.02")
    for option, value in {"--n-best": n_best > 1, **others}.items():
        if value:
            raise UserError(f"--mbr: given with {option}; give one of them")


def with_mbr(work: Work, mbr: Utility | None) -> Work:
    """The same work, with the one translation of each line that is most like all of its translations."""
    if mbr is None:
        return work

    def choose(line: Line | None) -> Line | None:
        if line is None:
            return None
        return dataclasses.replace(line, translations=ranked(line.translations, mbr)[:1])

    return lambda chunks, on_lines: (
        dataclasses.replace(answer, lines=[choose(line) for line in answer.lines]) for answer in work(chunks, on_lines)
    )


def check_settings(settings: Settings, config: RunConfig, *, option: str = "--n-best") -> None:
    """Check what is wanted of a search and a model.

    Raises:
        UserError: they do not give it.
    """
    section = settings.section
    if settings.n_best > section.beam and section.sampler is None:
        raise UserError(f"{option}: {settings.n_best} with --beam {section.beam}; allowed is at most the beam")


def warn(counts: SourceCounts, tokenizer: Tokenizer, config: RunConfig, checkpoint: Checkpoint) -> None:
    """Print warnings about the sources to stderr."""
    positions, is_expected = config.model.max_positions, expects_tag(checkpoint, config)
    for line in counts.warnings(tokenizer, positions, expects_tag=is_expected):
        tell(f"zeromt: {line}")


def start_work(stack: contextlib.ExitStack, settings: Settings, processes: int | None) -> Work:
    """A function from chunks to answers, in order, run here or in other processes; the models are loaded.

    Args:
        stack: closes the processes.
        settings: what to do with each line.
        processes: None for one on each GPU or core.
    """
    num_processes = processes if processes is not None else torch.cuda.device_count() or len(os.sched_getaffinity(0))
    if num_processes == 1:
        worker = Worker(settings)
        return lambda chunks, on_lines: (worker.do(chunk, on_lines) for chunk in chunks if chunk is not None)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if os.environ.get("CUDA_VISIBLE_DEVICES") else None
    num_gpus = torch.cuda.device_count()
    gpus = visible or [str(i) for i in range(num_gpus)]
    pool = Pool(settings, [gpus[i % len(gpus)] if num_gpus else None for i in range(num_processes)])
    stack.callback(pool.close)
    return pool.answers


def _write(
    answers: Iterator[Answer], out: IO[str], progress: Progress, *, n_best: int, is_scored: bool
) -> SourceCounts:
    """Write the results of the lines; returns counts about their sources."""
    number, counts = 0, SourceCounts()
    for answer in answers:
        for line in filter(None, answer.lines):
            out.writelines(_render(number, line, n_best, is_scored=is_scored))
            number += 1
        counts.add(answer.counts)
        out.flush()
        progress.reach(number)  # empty lines are in no batch
    return counts


def _render(number: int, line: Line, n_best: int, *, is_scored: bool) -> Iterator[str]:
    for t in line.translations:
        if is_scored:
            yield f"{t.log_prob:.4f}\t{t.score:.4f}\n"
        elif n_best > 1:
            yield f"{number}\t{t.score:.4f}\t{t.text}\n"
        else:
            yield f"{t.text}\n"


def _open_output(name: str | None) -> contextlib.AbstractContextManager[IO[str]]:
    if name is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        return contextlib.nullcontext(sys.stdout)
    return written(name, "--output")


def _progress(stack: contextlib.ExitStack, input: str | None, output: str | None) -> Progress:
    """A bar, unless the translations themselves go to the terminal."""
    is_quiet = output is None and os.isatty(1)
    total = None if is_quiet else count_lines(input)
    return stack.enter_context(Progress("translating", total, unit="lines", is_quiet=is_quiet))


def _named(**paths: str | None) -> dict[str, str | None]:
    """The options that were given, in the user's spelling."""
    return {f"--{name}": path for name, path in paths.items() if path is not None}
