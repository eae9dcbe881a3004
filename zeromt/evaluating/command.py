"""`zeromt evaluate`: corpus scores of a run on any test set, as JSON with signatures."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from configs import HeldOutSection, RunConfig, UserError
from configs.components import unknown
from configs.process.environment import restored_environment
from configs.process.files import check_apart
from configs.process.files.inside import written
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, all_sets, load_sets, read_set
from trainer.inference.loading import places_of
from zeromt.translator.engine import Engine, started
from zeromt.translator.scored import Evaluated, Wanted, parse_set, score_set, set_of_lines, settings_of
from zeromt.translator.worker import Options


@restored_environment()
def run(
    *,
    metrics: list[str] | None,
    tokenizer: str | None,
    source: str | None,
    reference: list[str] | None,
    sets: list[str] | None,
    output: str | None,
    **how: Any,
) -> int:
    """Translate held-out sets and score them against their references; the scores go to standard output.

    Args:
        metrics: written as items of `evaluation.metrics` or `evaluation.queued`, in YAML; None: the run's own.
        tokenizer: for BLEU, one of sacreBLEU's, or `auto`, or the run's.
        source, reference: a file (plain, .gz or .zst), and files of as many lines with its references.
        sets: instead, names of the run's sets, or others as items of `evaluation.sets`, in YAML; by default all.
        output: a file for the translations of one set.
        how: fields of `zeromt.translator.worker.Options`.

    Raises:
        UserError: a set cannot be read, differs in length or is empty, or the run has no whole checkpoint.
    """
    wanted = Wanted.of(metrics, tokenizer)  # refuse it before reading anything
    options = Options(processes=None if how["quantization"] else 1, **how)
    inputs = {"--source": source} | {f"--reference ({name})": name for name in reference or ()}
    check_apart(inputs | places_of((options.run, *options.ensemble)), {"--output": output} if output else {})
    _check_sets(source, reference, sets, options)
    chosen = [parse_set(text) for text in sets or ()]
    with contextlib.ExitStack() as stack:
        files = read_set(source, reference, place="--source") if source is not None and reference is not None else None
        engine = started(stack, options)
        if files is None:
            texts = _sets(engine.config, engine.tokenizer, chosen)
        else:
            languages = (options.source_language, options.target_language)
            texts = [set_of_lines(engine, *files, languages)]
        if output is not None and len(texts) > 1:
            raise UserError(f"--output: one file for {len(texts)} sets; score one set at a time")
        done = [_of_set(engine, text, wanted, is_of_files=files is not None) for text in texts]
    settings = _settings(engine)
    figures = done[0].figures if files else {"sets": {one.text.name: one.figures for one in done}}
    print(json.dumps({**figures, **settings}, indent=1), flush=True)
    if output is not None:
        with written(output, "--output") as file:
            file.writelines(f"{h}\n" for h in done[0].hypotheses)
    return 0


def _sets(config: RunConfig, tokenizer: Tokenizer, wanted: Sequence[str | HeldOutSection]) -> list[SetText]:
    """Sets that are wanted, by name or as they are; or all that the run has.

    Raises:
        UserError: the run has no such set, or a set cannot be read.
    """
    if not wanted:
        texts = all_sets(config, tokenizer)
        if not texts:
            raise UserError(
                "--source: missing, and neither the run nor its data have held-out sets; give files, or --set"
            )
        return texts
    known = {section.name: section for section in config.evaluation.sets}
    sections = [_named(one, known) if isinstance(one, str) else one for one in wanted]
    needs_data = any(section.prepared is not None for section in sections)
    datasets = [Dataset.load(d.path, config.stream) for d in config.datasets] if needs_data else []
    return load_sets(sections, config.prepare, dataset_names(datasets), option="--set", tokenizer=tokenizer)


def _named(name: str, known: Mapping[str, HeldOutSection]) -> HeldOutSection:
    if name not in known:
        raise UserError(f"--set: {unknown(name, known, what='set of the run')}; or '{{name: x, prepared: test}}'")
    return known[name]


def _of_set(engine: Engine, text: SetText, wanted: Wanted, *, is_of_files: bool) -> Evaluated:
    """Translate and score a set."""
    about = {} if is_of_files else {"role": text.role, "languages": "-".join(text.languages)}
    done = score_set(engine, text, wanted, engine.settings if is_of_files else settings_of(engine, text))
    engine.warn()
    pairs = len(text.sources)
    speed = round(pairs / max(done.seconds, 1e-3), 2)
    work = {"pairs": pairs, "seconds": round(done.seconds, 2), "sentences_per_second": speed}
    return done._replace(figures={**about, **done.figures, **work})


def _settings(engine: Engine) -> dict[str, Any]:
    """The settings that the scores were measured with."""
    options, checkpoint = engine.options, engine.checkpoints[0]
    return {
        "beam": engine.section.beam,
        "patience": engine.section.patience,
        "length_penalty": engine.section.length_penalty,
        "ensemble": [str(other.folder) for other in engine.checkpoints[1:]],
        "checkpoint": str(checkpoint.folder),
        "step": checkpoint.manifest["step"],
        "precision": engine.precision,
        "weights": checkpoint.weights_kind(raw=options.raw_weights),
        **({"paragraphs": True} if options.paragraphs else {}),
    }


def _check_sets(
    source: str | None, references: Sequence[str] | None, sets: Sequence[str] | None, options: Options
) -> None:
    """Raise unless files or sets are chosen.

    Raises:
        UserError: an option is missing or superfluous.
    """
    if (source is None) != (references is None):
        raise UserError(f"--{'source' if source is None else 'reference'}: missing; give both, or --set")
    if source is not None and sets is not None:
        raise UserError("--set: given with --source; give one of them")
    for side in ("source", "target"):
        if source is None and (language := getattr(options, f"{side}_language")) is not None:
            raise UserError(f"--{side}-language: {language!r} without --source; sets have languages of their own")
