"""`zeromt evaluate`: corpus scores of a run on any test set, as JSON with signatures."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs import EvaluationSection, HeldOutSection, RunConfig, SearchSection, UserError
from configs.components import Metric, unknown
from configs.evaluation import QueuedMetric
from configs.process.environment import restored_environment
from configs.process.files.inside import written
from configs.process.streams import tell
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.tokenizer import Tokenizer
from model.search import Ensemble
from trainer.checkpoint.format import Checkpoint
from trainer.datasets import dataset_names
from trainer.evaluation.sets import SetText, all_sets, load_sets, read_set, tagged
from trainer.inference.loading import TrainedModel, check_same_tokenizer, load_ensemble, places_of, with_checkpoints
from trainer.inference.translation.languages import LanguageTags, language_tags
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import Translator
from trainer.ranks.process import tune_process
from zeromt.evaluating.doubts import of_sides
from zeromt.evaluating.engine import evaluate as of_engine
from zeromt.evaluating.scoring import Wanted, check_output, figures_of, show, speed
from zeromt.evaluating.translation_cache import Work, keep
from zeromt.translating.command import search_section, warn
from zeromt.translating.paragraphs import translated_paragraphs
from zeromt.translating.parsing import parse_option


@restored_environment()
def run(
    *,
    run: str | None,
    engine: str | None,
    metrics: list[str] | None,
    lowercase: bool,
    tokenizer: str | None,
    sets: list[str] | None,
    **options: Any,
) -> int:
    """Translate held-out sets and score them against their references; the scores go to standard output.

    Args:
        run: its folder.
        engine: in its place, a YAML file; see `zeromt.evaluating.engine.evaluate`.
        metrics: written as items of `evaluation.metrics` or `evaluation.queued`, in YAML; None: the run's own.
        lowercase, tokenizer: ignore case, in metrics that can; for BLEU, one of sacreBLEU's, or `auto`, or the run's.
        sets: see `of_run`.
        options: see there.

    Raises:
        UserError: a set cannot be read, differs in length or is empty, or the run has no whole checkpoint.
    """
    wanted = Wanted.of(metrics, tokenizer, lowercase=lowercase)  # refuse it before reading anything
    if engine is not None:
        return of_engine(engine, wanted, run=run, set=sets, **options)
    if run is None:
        raise UserError("RUN: none given; give a run's folder, or --engine FILE")
    return of_run(run, wanted, sets=sets, **options)


def of_run(
    run: str,
    wanted: Wanted,
    *,
    source: str | None,
    reference: list[str] | None,
    sets: list[str] | None,
    ensemble: list[str],
    raw_weights: bool,
    precision: str | None,
    source_language: str | None,
    target_language: str | None,
    search: Mapping[str, Any],
    output: str | None,
    paragraphs: bool,
    as_json: bool,
) -> int:
    """Translate held-out sets with a run, score and print them.

    Args:
        run: its folder.
        wanted: metrics.
        source, reference: a file (plain, .gz, .zst, .xz or .bz2), and files of as many lines with its references.
        sets: instead, names of the run's sets, or others as items of `evaluation.sets`, in YAML; by default all of it.
        ensemble: further runs, whose probabilities are averaged with those of `run`.
        raw_weights: use the weights themselves, even if there are moving averages.
        precision: auto, fp32, bf16 or fp16; None for fp32 on a CPU and the run's on a GPU.
        source_language, target_language: of models with tags on both sides; the run's unless given.
        search: fields of the run's search section to replace.
        output: a file for the translations of one set.
        paragraphs: translate each sentence of a line by itself.
        as_json: print JSON on a terminal too.
    """
    tune_process()
    check_output(output, source, reference or (), places_of((run, *ensemble)))
    chosen = _choose(source, reference, sets, {"source": source_language, "target": target_language})
    checkpoints, model, trained = with_checkpoints(
        (run, *ensemble), lambda whole: _load(whole, raw=raw_weights, precision=precision)
    )
    texts = chosen.texts(trained.config, trained.tokenizer)
    if output is not None and len(texts) > 1:
        raise UserError(f"--output: one file for {len(texts)} sets; score one set at a time")
    section = search_section(trained.config.evaluation.search, search)
    with contextlib.nullcontext() if output is None else written(output, "--output") as sink:
        how = {"raw": raw_weights, "paragraphs": paragraphs}
        done = [score_set(text, chosen.tags(text, trained), wanted, model, trained, section, **how) for text in texts]
        settings = _settings(section, checkpoints, trained, raw=raw_weights)
        settings |= {"paragraphs": True} if paragraphs else {}
        report = _of_sets(done, settings) if chosen.files is None else {**done[0].figures, **settings, **_work(done[0])}
        figures = {one.text.name: {**one.figures, **_work(one)} for one in done}
        show(report, figures, done[0].metrics, as_json=as_json)  # first, in case the file cannot be written
        if sink is not None:
            sink.writelines(f"{h}\n" for h in done[0].hypotheses)
    if chosen.files is not None:
        for line in of_sides(done[0].text.sources, done[0].text.references[0], done[0].hypotheses):
            tell(f"zeromt: warning: {line}")
    for one in done:
        warn(one.counts, trained.tokenizer, trained.config, trained.checkpoint)
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

    def tags(self, text: SetText, trained: TrainedModel) -> LanguageTags | None:
        """The tags with which a set's sources and translations begin.

        Raises:
            UserError: the model does not know these languages.
        """
        prepare = trained.config.prepare
        if self.files is not None:
            return language_tags(prepare, trained.tokenizer, **self.languages)
        if not (prepare.tag_both_sides and text.has_tags_of_both_sides):
            return None
        return language_tags(prepare, trained.tokenizer, source=text.languages[0], target=text.languages[1])


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
    counts: SourceCounts


def score_set(
    text: SetText,
    tags: LanguageTags | None,
    wanted: Wanted,
    model: Ensemble,
    trained: TrainedModel,
    section: SearchSection,
    *,
    raw: bool,
    paragraphs: bool = False,
) -> Evaluated:
    """Translate and score a set; a single model's translations are kept for `zeromt compare`."""
    scorer = wanted.scorer(trained.config.evaluation, text)
    translator = Translator(model, trained.tokenizer, section, trained.device, tags=tags)
    begin = time.monotonic()

    def translate(lines: Sequence[str]) -> list[str]:
        return [best[0].text for best in translator.translate(lines)]

    if paragraphs:
        hypotheses = translated_paragraphs(text.sources, trained.tokenizer, translate)
    else:
        hypotheses = translate(text.sources)
    seconds = time.monotonic() - begin
    if len(model.models) == 1 and not paragraphs:
        weights = trained.checkpoint.weights_kind(raw=raw)
        work = Work.of(text, section, tags, weights=weights, precision=trained.precision)
        keep(trained.checkpoint, work, hypotheses, name=text.name)
    return Evaluated(
        text=text,
        hypotheses=hypotheses,
        figures=figures_of(scorer, text, hypotheses, wanted.commands),
        metrics=[*scorer.metrics, *wanted.commands],
        seconds=seconds,
        counts=translator.counts,
    )


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
        one.text.name: {"role": one.text.role, "languages": "-".join(one.text.languages), **one.figures, **_work(one)}
        for one in done
    }
    return {"sets": sets, **({"language_pairs": means} if len(means) > 1 else {}), **settings}


def _work(done: Evaluated) -> dict[str, Any]:
    return {
        "pairs": len(done.text.sources),
        "truncated": done.counts.truncated,
        **speed(len(done.text.sources), done.seconds),
    }


def _mean(figures: Sequence[float | None], digits: int) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return round(sum(known) / len(known), digits) if len(known) == len(figures) else None


def _settings(
    section: SearchSection, checkpoints: Sequence[Checkpoint], trained: TrainedModel, *, raw: bool
) -> dict[str, Any]:
    """The settings that the scores were measured with."""
    return {
        "beam": section.beam,
        "patience": section.patience,
        "length_penalty": section.length_penalty,
        "ensemble": [str(checkpoint.folder) for checkpoint in checkpoints[1:]],
        "checkpoint": str(trained.checkpoint.folder),
        "step": trained.checkpoint.manifest["step"],
        "precision": trained.precision,
        "weights": trained.checkpoint.weights_kind(raw=raw),
    }


def _load(
    checkpoints: list[Checkpoint], *, raw: bool, precision: str | None
) -> tuple[list[Checkpoint], Ensemble, TrainedModel]:
    check_same_tokenizer([checkpoint.folder for checkpoint in checkpoints])
    return checkpoints, *load_ensemble(checkpoints, raw=raw, precision=precision)


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
