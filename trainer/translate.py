"""`zeromt translate`: lines in, lines out, in order, in bounded memory."""

import contextlib
import dataclasses
import itertools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tqdm import tqdm

from configs import SearchSection, UserError
from trainer.loading import load_trained
from trainer.process import tune_process
from trainer.translator import Translation, Translator

CHUNK_LINES = 2048
"""Lines read, sorted by length and translated at once."""

log = logging.getLogger(__name__)


def run(
    *,
    run: str,
    input: str | None,
    output: str | None,
    beam: int | None,
    length_penalty: float | None,
    n_best: int,
    batch_tokens: int | None,
) -> int:
    """Translate a file, or standard input, line by line.

    With `n_best` above 1 every line gives that many, as `line number <TAB> score <TAB> translation`, numbered from 0.

    Raises:
        UserError: the run, a file or an option is wrong.
    """
    tune_process()
    trained = load_trained(Path(run))
    section = search_section(
        trained.config.evaluation.search, beam=beam, length_penalty=length_penalty, batch_tokens=batch_tokens
    )
    if n_best > section.beam:
        raise UserError(f"--n-best: {n_best} with --beam {section.beam}; allowed is at most the beam")
    translator = Translator(trained.model, trained.tokenizer, section, trained.device)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_open_input(input))
        sink = stack.enter_context(_open_output(output))
        bar = stack.enter_context(tqdm(unit=" lines", disable=not _shows_progress(output)))
        number = 0
        for chunk in _chunks(_lines(source, input or "standard input")):
            for translations in translator.translate(chunk, n_best=n_best):
                sink.writelines(_render(number, translations, n_best))
                number += 1
            sink.flush()
            bar.update(len(chunk))
    if translator.num_truncated:
        print(
            f"zeromt: {translator.num_truncated} lines were longer than model.max_positions="
            f"{trained.model.max_positions} pieces and lost their end",
            file=sys.stderr,
        )
    return 0


def search_section(
    section: SearchSection, *, beam: int | None, length_penalty: float | None, batch_tokens: int | None = None
) -> SearchSection:
    """The run's own settings of the search with those of the command line in their place.

    Raises:
        UserError: they contradict each other.
    """
    given = {"beam": beam, "length_penalty": length_penalty, "batch_tokens": batch_tokens}
    changed = dataclasses.replace(section, **{k: v for k, v in given.items() if v is not None})  # type: ignore[arg-type]
    for problem in changed.problems():
        raise UserError(f"--{problem}")
    return changed


def _render(number: int, translations: list[Translation], n_best: int) -> Iterator[str]:
    if n_best == 1:
        yield f"{translations[0].text}\n"
        return
    for t in translations:
        yield f"{number}\t{t.score:.4f}\t{t.text}\n"


def _open_input(name: str | None) -> contextlib.AbstractContextManager[IO[bytes]]:
    if name is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise UserError(f"--input: {name!r} cannot be read: {error.strerror}") from error


def _open_output(name: str | None) -> contextlib.AbstractContextManager[IO[str]]:
    if name is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        return contextlib.nullcontext(sys.stdout)
    try:
        return Path(name).open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UserError(f"--output: {name!r} cannot be written: {error.strerror}") from error


def _lines(source: IO[bytes], name: str) -> Iterator[str]:
    """Lines end at a line feed alone, so that what comes out has as many."""
    for number, raw in enumerate(source, start=1):
        try:
            yield raw.decode("utf-8").rstrip("\n").rstrip("\r")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}: line {number} is not UTF-8") from error


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(itertools.islice(lines, CHUNK_LINES)):
        yield chunk


def _shows_progress(output: str | None) -> bool:
    """A bar on a terminal, unless the translations go there themselves."""
    return sys.stderr.isatty() and (output is not None or not os.isatty(1))
