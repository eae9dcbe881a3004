"""`zeromt evaluate --engine`: a run's export is scored as a run is."""

import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files.inside import written
from configs.process.streams import note
from trainer.evaluation.sets import SetText, read_set, tagged
from trainer.inference.translation.translator import Translation, nobody
from trainer.ranks.process import tune_process
from zeromt.evaluating.scoring import Wanted, check_output, figures_of, show, speed
from zeromt.translating.corpus.command import read_engine
from zeromt.translating.engines.zeromt import PreparedRun
from zeromt.translating.worker import of_text

_CHUNK = 2048
"""Lines that an engine gets at a time, as `zeromt translate --chunk-lines` has it by default."""


def evaluate(
    name: str,
    wanted: Wanted,
    *,
    run: str | None,
    source: str | None,
    reference: list[str] | None,
    target_language: str | None,
    output: str | None,
    as_json: bool,
    **of_run: Any,
) -> int:
    """Translate files with an engine and score them; a line without a translation counts as an empty one.

    Args:
        name: of a YAML file, as of `zeromt translate --engine`.
        wanted: metrics.
        run: RUN, which must not be given.
        source, reference, output, as_json: see `zeromt.evaluating.command.of_run`.
        target_language: of the references; by default the run's.
        of_run: options of RUN, which must not be given either.

    Raises:
        UserError: a file or an option is wrong, or the engine cannot be started.
    """
    engine = read_engine(name, run, of_run)
    if source is None or reference is None:
        raise UserError(f"--{'source' if source is None else 'reference'}: missing; with --engine, give both")
    check_output(output, source, reference, {"--engine": name})
    tune_process()
    sources, references = read_set(source, reference, place="--source")
    prepared = engine.prepare(candidates=1)
    text = _text(prepared, sources, references, target_language)
    scorer = wanted.scorer(prepared.config.evaluation, text)
    with contextlib.nullcontext() if output is None else written(output, "--output") as sink:
        found, seconds = _translated(prepared, text.sources)
        hypotheses = ["" if isinstance(one, str) or not one else one[0].text for one in found]
        report = {
            **figures_of(scorer, text, hypotheses, wanted.commands),
            "pairs": len(found),
            "holes": sum(isinstance(one, str) for one in found),
            **speed(len(found), seconds),
            "engine": dict(prepared.identity),
        }
        show(
            report, {text.name: report}, [*scorer.metrics, *wanted.commands], as_json=as_json
        )  # first, in case the file cannot be written
        if sink is not None:
            sink.writelines(f"{line}\n" for line in hypotheses)
    for line in prepared.warnings():
        note(line)
    return 0


def _text(prepared: PreparedRun, sources: list[str], references: list[list[str]], language: str | None) -> SetText:
    """The set, with the run's tag."""
    section = prepared.config.prepare
    language = language or section.target_language
    lines = tagged(sources, language, section, prepared.tokenizer)
    return SetText(name="files", languages=(section.source_language, language), sources=lines, references=references)


def _translated(prepared: PreparedRun, lines: Sequence[str]) -> tuple[list[list[Translation] | str], float]:
    """What became of each line, and seconds of translating; an export is made anew, and lost at the end."""
    chunks = [of_text(lines[begin : begin + _CHUNK], first=begin) for begin in range(0, len(lines), _CHUNK)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with contextlib.redirect_stdout(sys.stderr):  # of what is said of an export
            translate = prepared.start(stack, folder, processes=None)
        begin = time.monotonic()
        found = iter([one for chunk in translate(chunks, nobody) for one in chunk])
        seconds = time.monotonic() - begin
    return [next(found) if line.strip() else [] for line in lines], seconds
