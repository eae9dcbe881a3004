"""`zeromt translate`: lines in, lines out, in order, in bounded memory; or a part of a corpus (`corpus.py`)."""

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from configs import UserError
from configs.process.environment import restored_environment
from configs.process.files import check_apart
from configs.process.files.inside import written
from configs.process.progress import Progress
from launcher.options.values import new_file
from trainer.inference.loading import places_of
from trainer.inference.translation.translator import Translation
from zeromt.translating import corpus
from zeromt.translating.lines import read_chunks, survey
from zeromt.translator.engine import started
from zeromt.translator.worker import Options

_SETTING = re.compile(r"[a-z][a-z_0-9.-]*=\S*")
"""`beam=5`, as fields are set for other commands."""


@restored_environment()
def run(
    *,
    run: str,
    sentences: Sequence[str],
    input: list[str | None] | None,
    output: str | None,
    part: tuple[int, int] | None,
    merge: bool,
    chunk_lines: int | None,
    choose: str | int | None,
    to: str | None,
    replace: bool,
    n_best: int,
    score: bool,
    candidates: int,
    **how: Any,
) -> int:
    """Translate sentences, or lines, or a part of a corpus, or merge its parts.

    With `n_best` above 1 there are that many output lines per input line: `line number <TAB> score <TAB> translation`,
    numbered from 0. With `score` each output line has the log-probability of the given translation, and this over the
    length penalty.

    Args:
        run: see `Options`.
        sentences: instead of lines.
        input, output: files; None for standard input and output.
        part, merge, chunk_lines, choose, to, replace: see `zeromt.translating.corpus.run`.
        n_best: translations of a line to write.
        score: score the translations behind a tab on each line.
        candidates: translations of a line to choose from.
        how: further fields of `Options`.

    Raises:
        UserError: a run, a file or an option is wrong.
    """
    in_parts = part is not None or merge
    options = Options(run=run, candidates=max(n_best, candidates), **how)
    of_lines = {"n_best": n_best > 1, "score": score}
    of_parts: dict[str, Any] = {"chunk_lines": chunk_lines, "choose": choose, "to": to, "replace": replace}
    for name, value in (of_lines if in_parts else of_parts).items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option}: {'with' if in_parts else 'without'} --part or --merge; leave one of them out")
    _check_sentences(sentences, {"--input": input, "--part": part, "--merge": merge})
    own = {"--paragraphs": options.paragraphs, "--quantization": options.quantization}
    _apart("--score", score, {"--n-best": n_best > 1, "--mbr": options.mbr, **own})
    _apart("--mbr", options.mbr, {"--n-best": n_best > 1})
    if options.mbr is not None and candidates == 1:
        raise UserError("--mbr: with one candidate; give --candidates 16 or more, and --sample --epsilon 0.02")
    if candidates > 1 and options.mbr is None and not in_parts:
        raise UserError(f"--candidates: {candidates} without --mbr or --part; give one of them, or --n-best")
    if in_parts:
        return corpus.run(part=part, options=options, input=input, output=output, **of_parts)
    if input is not None and len(input) > 1:
        raise UserError(f"--input: {len(input)} files; several are translated with --part and --merge")
    file = input[0] if input else None
    _check_output(options, output, file)
    with contextlib.ExitStack() as stack:
        chunks = read_chunks(stack, file, has_targets=score, sentences=sentences)
        lines = stack.enter_context(_open_output(output))
        total = survey([Path(file)])[0] if file is not None and Path(file).is_file() else None
        engine = started(stack, options)
        is_quiet = output is None and os.isatty(1)  # the translations themselves go to the terminal
        progress = stack.enter_context(Progress("translating", total, unit="lines", is_quiet=is_quiet))
        number = 0
        for by_line in engine.translate(chunks, on_lines=progress.advance):
            for translations in by_line:
                lines.writelines(_rendered(number, translations, n_best=n_best, is_scored=score))
                number += 1
            lines.flush()
            progress.reach(number)  # empty lines are in no batch
    engine.warn()
    return 0


def _check_sentences(sentences: Sequence[str], others: Mapping[str, object]) -> None:
    for option, value in others.items():
        if sentences and value:
            raise UserError(f"SENTENCE: {sentences[0]!r} is given with {option}; give one of them")
    for sentence in sentences:
        with contextlib.suppress(OSError, ValueError):  # a name that is too long for one
            if Path(sentence).is_file():
                raise UserError(f"SENTENCE: {sentence} is a file; -i {sentence} translates its lines")
        if _SETTING.fullmatch(sentence):
            advice = "options are written --name value, and such text is read from a file (-i)"
            raise UserError(f"SENTENCE: {sentence!r} is a setting, and no sentence; {advice}")


def _apart(option: str, value: object, others: Mapping[str, object]) -> None:
    """Refuse an option together with others that exclude it."""
    for other, is_given in others.items():
        if value and is_given:
            raise UserError(f"{option}: given with {other}; give one of them")


def _check_output(options: Options, output: str | None, file: str | None) -> None:
    if output is not None:
        try:
            new_file(output)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"--output: {error}") from error
        given = {} if file is None else {"--input": file}
        check_apart(given | places_of((options.run, *options.ensemble)), {"--output": output})


def _rendered(number: int, translations: Sequence[Translation], *, n_best: int, is_scored: bool) -> Iterator[str]:
    for one in translations[:n_best]:
        if is_scored:
            yield f"{one.log_prob:.4f}\t{one.score:.4f}\n"
        elif n_best > 1:
            yield f"{number}\t{one.score:.4f}\t{one.text}\n"
        else:
            yield f"{one.text}\n"


def _open_output(name: str | None) -> contextlib.AbstractContextManager[IO[str]]:
    if name is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        return contextlib.nullcontext(sys.stdout)
    return written(name, "--output")
