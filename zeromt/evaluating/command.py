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
from configs.process.files.inside import written
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, all_sets, load_sets, read_set, tagged
from trainer.inference.loading import places_of
from trainer.inference.translation.languages import LanguageTags, language_tags
from trainer.inference.translation.sources import SourceCounts
from zeromt.evaluating.scoring import Wanted, check_output, figures_of, show, speed
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
    check_output(output, source, reference or (), places_of((options.run, *options.ensemble)))
    chosen = _choose(source, reference, sets, {"source": options.source_language, "target": options.target_language})
    with contextlib.ExitStack() as stack:
        engine = started(stack, options)
        engine.modifiers = []  # a score is of lines as they are, as in training
        texts = chosen.texts(engine.config, engine.tokenizer)
        if output is not None and len(texts) > 1:
            raise UserError(f"--output: one file for {len(texts)} sets; score one set at a time")
        done = [_of_set(engine, chosen, text, wanted) for text in texts]
    settings = _settings(engine)
    report = _of_sets(done, settings) if chosen.files is None else {**done[0].figures, **settings}
    show(report, {one.text.name: one.figures for one in done}, done[0].metrics, as_json=as_json)
    if output is not None:
        with written(output, "--output") as file:
            file.writelines(f"{h}\n" for h in done[0].hypotheses)
    return 0


@dataclass(kw_only=True, slots=True, frozen=True)
class Chosen:
    """The sets to evaluate on."""

    files: tuple[Sequence[str], Sequence[Sequence[str]]] | None
    """Lines of source and references, if files are named."""
    languages: Mapping[str, str | None]
    """Their languages, by side; None: the run's."""
    sets: Sequence[str | HeldOutSection]
    """If no files are named: names of the run's sets, or others; empty for all of the run's."""

    def texts(self, config: RunConfig, tokenizer: Tokenizer) -> list[SetText]:
        """The text of the sets, with the run's tag; see `trainer.evaluation.sets.tagged`.

        Raises:
            UserError: the run has no such set, or a set cannot be read.
        """
        if self.files is not None:
            own = (config.prepare.source_language, config.prepare.target_language)
            source, target = (a or b for a, b in zip(self.languages.values(), own, strict=True))
            sources = tagged(self.files[0], target, config.prepare, tokenizer)
            return [SetText(name="files", languages=(source, target), sources=sources, references=self.files[1])]
        known = {section.name: section for section in config.evaluation.sets}
        if not self.sets:
            texts = all_sets(config, tokenizer)
            if not texts:
                raise UserError(
                    "--source: missing, and neither the run nor its data have held-out sets; give files, or --set"
                )
            return texts
        sections = [_named(one, known) if isinstance(one, str) else one for one in self.sets]
        needs_data = any(section.prepared is not None for section in sections)
        datasets = [Dataset.load(d.path, config.stream) for d in config.datasets] if needs_data else []
        return load_sets(sections, config.prepare, dataset_names(datasets), option="--set", tokenizer=tokenizer)

    def tags(self, text: SetText, prepare: PrepareSection, tokenizer: Tokenizer) -> LanguageTags | None:
        """The tags with which a set's sources and translations begin.

        Raises:
            UserError: the model does not know these languages.
        """
        if self.files is not None:
            return language_tags(prepare, tokenizer, **self.languages)
        if not (prepare.tag_both_sides and text.has_tags_of_both_sides):
            return None
        return language_tags(prepare, tokenizer, source=text.languages[0], target=text.languages[1])


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


def _of_set(engine: Engine, chosen: Chosen, text: SetText, wanted: Wanted) -> Evaluated:
    """Translate and score a set; a single model's translations are kept for `zeromt compare`."""
    engine.tags, engine.counts = chosen.tags(text, engine.config.prepare, engine.tokenizer), SourceCounts()

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
    work = {"pairs": len(text.sources), "truncated": engine.counts.truncated}
    figures = {**done.figures, **work, **speed(len(text.sources), done.seconds)}
    return dataclasses.replace(done, figures=figures)


def _of_sets(done: Sequence[Evaluated], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Scores by set and, with several language pairs, the means over each pair's sets."""
    by_pair: dict[str, list[Evaluated]] = {}
    for one in done:
        by_pair.setdefault("-".join(one.text.languages), []).append(one)
    means = {
        pair: {m.key(): _mean([one.figures[m.key()] for one in sets], m.digits) for m in sets[0].metrics}
        for pair, sets in by_pair.items()
    }
    sets = {
        one.text.name: {"role": one.text.role, "languages": "-".join(one.text.languages), **one.figures} for one in done
    }
    return {"sets": sets, **({"language_pairs": means} if len(means) > 1 else {}), **settings}


def _mean(figures: Sequence[float | None], digits: int) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return round(sum(known) / len(known), digits) if len(known) == len(figures) else None


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


def _choose(
    source: str | None,
    references: Sequence[str] | None,
    sets: Sequence[str] | None,
    languages: Mapping[str, str | None],
) -> Chosen:
    """The sets that the options choose.

    Raises:
        UserError: an option is missing or superfluous, or a file cannot be used.
    """
    if source is not None and references is not None and sets is None:
        return Chosen(files=read_set(source, references, place="--source"), languages=languages, sets=())
    if source is not None or references is not None:
        if sets is not None:
            raise UserError("--set: given with --source or --reference; give one or the other")
        raise UserError(f"--{'source' if source is None else 'reference'}: missing; give both, or --set")
    for side, language in languages.items():
        if language is not None:
            raise UserError(f"--{side}-language: {language!r} without --source; sets have languages of their own")
    return Chosen(files=None, languages=languages, sets=[parse_set(text) for text in sets or ()])


def parse_set(text: str) -> str | HeldOutSection:
    """A set given by name, or written as an item of `evaluation.sets`.

    Raises:
        UserError: the text is neither.
    """
    if not text.lstrip().startswith("{"):
        return text
    section: EvaluationSection = parse_option("--set", [f"sets[0]={text}"], EvaluationSection)
    return section.sets[0]
