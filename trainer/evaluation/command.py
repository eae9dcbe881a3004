"""`zeromt evaluate`: corpus scores of a run on any test set, as JSON with signatures."""

import contextlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from configs import CorpusFiles, EvaluationSection, RunConfig, SearchSection, UserError
from configs.components import Metric, ScoredText, make
from configs.components.metric import SIGNATURE
from configs.files import check_apart, written
from data_pipeline.preparation.raw.corpus import read_chunks
from model.search import Ensemble
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import TrainedModel, check_same_tokenizer, load_ensemble, places_of, with_checkpoints
from trainer.inference.options import parse_option
from trainer.inference.translate import search_section, warn
from trainer.inference.translation.languages import language_tags
from trainer.inference.translation.lines import CHUNK_LINES
from trainer.inference.translation.translator import Translator
from trainer.metrics.scoring import Scorer
from trainer.ranks.process import tune_process
from trainer.runs.process.caller import restored_environment


@restored_environment()
def run(
    *,
    run: str,
    source: str,
    reference: str,
    ensemble: list[str],
    raw_weights: bool,
    precision: str | None,
    source_language: str | None,
    target_language: str | None,
    search: Mapping[str, Any],
    metrics: list[str] | None,
    tokenizer: str | None,
    output: str | None,
) -> int:
    """Translate the source (plain, .gz, .zst, .xz or .bz2) and score it against the reference; JSON on standard output.

    Args:
        ensemble: further runs, whose probabilities are averaged with those of `run`.
        raw_weights: not their moving averages, where they have such.
        precision: auto, fp32, bf16 or fp16; None for fp32 on a CPU and the run's on a GPU.
        source_language, target_language: of models that have tags on both sides; the run's unless given.
        search: fields of the run's search section to replace.
        metrics: as the items of `evaluation.metrics`, in YAML; the run's own where it is None.
        tokenizer: sacreBLEU's, or `auto`, of BLEU; the run's own where it is None.
        output: a file for the translations.

    Raises:
        UserError: the files cannot be read, differ in length or are empty, or the run has no whole checkpoint.
    """
    chosen = None if metrics is None else parse_metrics(metrics)
    _check(chosen, tokenizer)  # before anything is read
    tune_process()
    check_apart(
        {"--source": source, "--reference": reference, **places_of((run, *ensemble))},
        {} if output is None else {"--output": output},
    )
    sources, references = _read(source, reference)
    checkpoints, model, trained = with_checkpoints(
        (run, *ensemble), lambda found: _load(found, raw=raw_weights, precision=precision)
    )
    scorer = _scorer(trained.config, chosen, tokenizer, target_language, references)
    section = search_section(trained.config.evaluation.search, search)
    languages = {"source": source_language, "target": target_language}
    tags = language_tags(trained.config.prepare, trained.tokenizer, **languages)
    translator = Translator(model, trained.tokenizer, section, trained.device, tags=tags)
    with contextlib.nullcontext() if output is None else written(output, "--output") as sink:
        begin = time.monotonic()
        hypotheses = [best[0].text for best in translator.translate(sources)]
        seconds = round(time.monotonic() - begin, 2)
        done = {"pairs": len(sources), "truncated": translator.counts.truncated, "seconds": seconds}
        figures = _scores(scorer, sources, hypotheses, references)
        report = {**figures, **_settings(section, checkpoints, trained, raw=raw_weights), **done}
        print(json.dumps(report, indent=1), flush=True)  # first: whatever becomes of the file
        if sink is not None:
            sink.writelines(f"{h}\n" for h in hypotheses)
    warn(translator.counts, trained.tokenizer, trained.config)
    return 0


def _scores(
    scorer: Scorer, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """Every metric's score, with its signature."""
    scores = scorer.score(sources, hypotheses, [references])
    found: dict[str, Any] = {}
    for metric in scorer.metrics:
        key = metric.key()
        found |= {key: round(scores[key].value, metric.digits), f"{key}{SIGNATURE}": scores[key].signature}
    return found


def _settings(
    section: SearchSection, checkpoints: Sequence[Checkpoint], trained: TrainedModel, *, raw: bool
) -> dict[str, Any]:
    """What the scores were measured with."""
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


def parse_metrics(texts: Sequence[str]) -> list[Metric]:
    """Metrics by their kinds, or as mappings in YAML: `ter`, `{kind: chrf, word_order: 2}`.

    Raises:
        UserError: there is no such metric, or a field is wrong.
    """
    items = [f"metrics[{number}]={text}" for number, text in enumerate(texts)]
    section: EvaluationSection = parse_option("--metrics", items, EvaluationSection)
    return list(section.metrics)


def _check(metrics: Sequence[Metric] | None, tokenizer: str | None) -> None:
    """Refuse what can be refused without the run.

    Raises:
        UserError: a metric that is named, or BLEU with the tokenizer that is named, cannot be computed here.
    """
    named = tokenizer is not None and tokenizer != "auto"
    text = ScoredText(target_language="en", tokenizer=tokenizer or "auto", tokenizer_option="--tokenizer")
    Scorer([*(metrics or ()), *([make("metric", "bleu")] if named else [])], text)


def _scorer(
    config: RunConfig,
    metrics: Sequence[Metric] | None,
    tokenizer: str | None,
    language: str | None,
    references: list[str],
) -> Scorer:
    """The scorer of a target language, the run's unless given; says so where its scores will say little.

    Raises:
        UserError: a metric cannot be computed here.
    """
    text = ScoredText(
        target_language=language or config.prepare.target_language,
        tokenizer=tokenizer or config.evaluation.tokenizer,
        tokenizer_option="evaluation.tokenizer" if tokenizer is None else "--tokenizer",
    )
    scorer = Scorer(config.evaluation.metrics if metrics is None else metrics, text)
    if tokenizer is not None and not any(metric.kind == "bleu" for metric in scorer.metrics):
        raise UserError(f"--tokenizer: {tokenizer!r} without BLEU; leave it out, or add bleu to --metrics")
    for doubt in scorer.doubts([references]):
        print(f"zeromt: {doubt}", file=sys.stderr)
    return scorer


def _read(source: str, reference: str) -> tuple[list[str], list[str]]:
    """The lines of both files.

    Raises:
        UserError: they cannot be read, differ in length or are empty.
    """
    chunks = list(read_chunks(CorpusFiles(source=[source], target=[reference]), ".", CHUNK_LINES))
    sources = [line for chunk in chunks for line in chunk.sources]
    if not sources:
        raise UserError(f"--source: {source!r} is empty; allowed is at least one line")
    return sources, [line for chunk in chunks for line in chunk.targets]
