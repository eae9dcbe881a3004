"""`zeromt evaluate`: corpus scores of a run on any test set, as JSON with signatures."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs import EvaluationSection, HeldOutSection, PrepareSection, RunConfig, UserError
from configs.components import Metric, unknown
from configs.evaluation import QueuedMetric
from configs.process.environment import restored_environment
from configs.process.files import check_apart
from configs.process.files.inside import written
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, all_sets, load_sets, read_set, tagged
from trainer.inference.loading import places_of
from trainer.inference.translation.languages import LanguageTags, language_tags
from trainer.inference.translation.sources import SourceCounts
from zeromt.evaluating.scoring import Wanted, figures_of, show
from zeromt.evaluating.translation_cache import Work, keep
from zeromt.translating.engine import Engine, started
from zeromt.translating.search import parse_option
from zeromt.translating.worker import Chunk, Options


@restored_environment()
def run(
    *,
    metrics: list[str] | None,
    lowercase: bool,
    tokenizer: str | None,
    source: str | None,
    reference: list[str] | None,
    sets: list[str] | None,
    output: str | None,
    as_json: bool,
    **how: Any,
) -> int:
    """Translate held-out sets and score them against their references; the scores go to standard output.

    Args:
        metrics: written as items of `evaluation.metrics` or `evaluation.queued`, in YAML; None: the run's own.
        lowercase, tokenizer: ignore case, in metrics that can; for BLEU, one of sacreBLEU's, or `auto`, or the run's.
        source, reference: a file (plain, .gz, .zst, .xz or .bz2), and files of as many lines with its references.
        sets: instead, names of the run's sets, or others as items of `evaluation.sets`, in YAML; by default all of it.
        output: a file for the translations of one set.
        as_json: print JSON on a terminal too.
        how: fields of `zeromt.translating.worker.Options`.

    Raises:
        UserError: a set cannot be read, differs in length or is empty, or the run has no whole checkpoint.
    """
    wanted = Wanted.of(metrics, tokenizer, lowercase=lowercase)  # refuse it before reading anything
    options = Options(processes=None if how["quantization"] else 1, **how)
    inputs = {"--source": source} | {f"--reference ({name})": name for name in reference or ()}
    check_apart(inputs | places_of((options.run, *options.ensemble)), {"--output": output} if output else {})
    _check_sets(source, reference, sets, options)
    chosen = [parse_set(text) for text in sets or ()]
    with contextlib.ExitStack() as stack:
        files = read_set(source, reference, place="--source") if source is not None and reference is not None else None
        engine = started(stack, options)
        engine.modifiers = []  # a score is of lines as they are, as in training
        if files is None:
            texts = _sets(engine.config, engine.tokenizer, chosen)
        else:
            languages = (options.source_language, options.target_language)
            texts = [set_of_lines(*files, languages, engine.config.prepare, engine.tokenizer)]
        if output is not None and len(texts) > 1:
            raise UserError(f"--output: one file for {len(texts)} sets; score one set at a time")
        done = [_of_set(engine, text, wanted, is_of_files=files is not None) for text in texts]
    settings = _settings(engine)
    figures = {one.text.name: one.figures for one in done}
    report = {**done[0].figures, **settings} if files else {"sets": figures, **settings}
    show(report, figures, done[0].metrics, as_json=as_json)
    if output is not None:
        with written(output, "--output") as file:
            file.writelines(f"{h}\n" for h in done[0].hypotheses)
    return 0


def set_of_lines(
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: tuple[str | None, str | None],
    prepare: PrepareSection,
    tokenizer: Tokenizer,
) -> SetText:
    """A set of lines, with the run's tag; see `trainer.evaluation.sets.tagged`.

    Args:
        sources, references: the lines.
        languages: of source and target; None for the run's.
        prepare, tokenizer: the run's.
    """
    source, target = languages[0] or prepare.source_language, languages[1] or prepare.target_language
    lines = tagged(sources, target, prepare, tokenizer)
    return SetText(name="files", languages=(source, target), sources=lines, references=references)


def tags_of(text: SetText, prepare: PrepareSection, tokenizer: Tokenizer) -> LanguageTags | None:
    """The tags with which a set's sources and translations begin.

    Raises:
        UserError: the model does not know these languages.
    """
    if not prepare.tag_both_sides:
        return None
    return language_tags(prepare, tokenizer, source=text.languages[0], target=text.languages[1])


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


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluated:
    """A set, translated and scored."""

    text: SetText
    hypotheses: Sequence[str]
    figures: Mapping[str, Any]
    """Scores, rounded for reading, each with its signature."""
    metrics: Sequence[Metric | QueuedMetric]
    seconds: float


def score_set(
    text: SetText, wanted: Wanted, section: EvaluationSection, translate: Callable[[list[str]], Sequence[str]]
) -> Evaluated:
    """Translate and score a set.

    Args:
        text: the set.
        wanted: metrics.
        section: the run's, for metrics that are not named.
        translate: gives the translation of each line.

    Raises:
        UserError: a metric cannot be computed here.
    """
    scorer = wanted.scorer(section, text)
    begin = time.monotonic()
    hypotheses = translate(list(text.sources))
    seconds = time.monotonic() - begin
    return Evaluated(
        text=text,
        hypotheses=hypotheses,
        figures=figures_of(scorer, text, hypotheses, wanted.commands),
        metrics=[*scorer.metrics, *wanted.commands],
        seconds=seconds,
    )


def _of_set(engine: Engine, text: SetText, wanted: Wanted, *, is_of_files: bool) -> Evaluated:
    """Translate and score a set; a single model's translations are kept for `zeromt compare`."""
    engine.counts = SourceCounts()
    about = {}
    if not is_of_files:
        engine.tags = tags_of(text, engine.config.prepare, engine.tokenizer)
        about = {"role": text.role, "languages": "-".join(text.languages)}

    def translate(lines: list[str]) -> list[str]:
        [found] = engine.translate([Chunk(first=0, sources=lines)])
        return [translations[0].text for translations in found]

    done = score_set(text, wanted, engine.config.evaluation, translate)
    options, checkpoint = engine.options, engine.checkpoints[0]
    if not (options.ensemble or options.paragraphs or options.quantization):
        weights = checkpoint.weights_kind(raw=options.raw_weights)
        kept = Work(text=text, search=engine.section, tags=engine.tags, weights=weights, precision=engine.precision)
        keep(checkpoint, kept, done.hypotheses)
    engine.warn()
    pairs = len(text.sources)
    work = {
        "pairs": pairs,
        "truncated": engine.counts.truncated,
        "seconds": round(done.seconds, 2),
        "sentences_per_second": round(pairs / max(done.seconds, 1e-3), 2),
    }
    return dataclasses.replace(done, figures={**about, **done.figures, **work})


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


def parse_set(text: str) -> str | HeldOutSection:
    """A set given by name, or written as an item of `evaluation.sets`.

    Raises:
        UserError: the text is neither.
    """
    if not text.lstrip().startswith("{"):
        return text
    section: EvaluationSection = parse_option("--set", [f"sets[0]={text}"], EvaluationSection)
    return section.sets[0]
