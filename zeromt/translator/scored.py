"""Held-out sets, translated and scored by the metrics that are wanted: for `evaluate`, `compare` and Python."""

import math
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from configs import EvaluationSection, HeldOutSection, UserError
from configs.components import Metric, ScoredText, make
from configs.components.training import SIGNATURE
from configs.evaluation import QueuedMetric
from trainer.evaluation.sets import SetText, tagged
from trainer.inference.translation.languages import language_tags
from trainer.inference.translation.sources import SourceCounts
from trainer.metrics.command import lines_of, score_by
from trainer.metrics.scoring import Score, Scorer
from zeromt.translator.engine import Engine
from zeromt.translator.search import parse_option
from zeromt.translator.worker import Chunk, TranslationSettings

_COMMAND = re.compile(r"""\{(?!.*\bkind["']?\s*:).*\bcommand["']?\s*:""", re.DOTALL)
"""An item of `evaluation.queued`, in YAML."""
_LOOP = re.compile(r"(?<!\S)(\S+(?: \S+){0,3})(?: \1){3}(?!\S)")


class Wanted(NamedTuple):
    """The metrics to score by."""

    metrics: Sequence[Metric] | None
    """None: the run's own metrics."""
    tokenizer: str | None
    """BLEU's tokenizer; None: the run's."""
    commands: Sequence[QueuedMetric] = ()

    @classmethod
    def of(cls, texts: Sequence[str] | None, tokenizer: str | None) -> "Wanted":
        """Read from the command's options.

        Raises:
            UserError: a named metric, or BLEU with the named tokenizer, cannot be computed here.
        """
        metrics: Sequence[Metric] | None = None
        commands: Sequence[QueuedMetric] = ()
        if texts is not None:
            named = {"queued": [one for one in texts if _COMMAND.search(one)]}
            named["metrics"] = [one for one in texts if one not in named["queued"]]
            items = [f"{field}[{number}]={one}" for field, ones in named.items() for number, one in enumerate(ones)]
            section: EvaluationSection = parse_option("--metrics", items, EvaluationSection)
            metrics, commands = section.metrics if named["metrics"] else (), section.queued
        bleu = [make("metric", "bleu")] if tokenizer not in (None, "auto") else []
        text = ScoredText(target_language="en", tokenizer=tokenizer or "auto", tokenizer_option="--tokenizer")
        Scorer([*(metrics or ()), *bleu], text)
        return cls(metrics=metrics, tokenizer=tokenizer, commands=commands)

    def scorer(self, section: EvaluationSection, text: SetText) -> Scorer:
        """The scorer of a set.

        Raises:
            UserError: a metric cannot be computed here.
        """
        metrics = section.metrics if self.metrics is None else self.metrics
        if self.tokenizer is not None and not any(metric.kind == "bleu" for metric in metrics):
            raise UserError(f"--tokenizer: {self.tokenizer!r} without BLEU; leave it out, or add bleu to --metrics")
        scored = ScoredText(
            target_language=text.languages[1],
            tokenizer=self.tokenizer or section.tokenizer,
            tokenizer_option="evaluation.tokenizer" if self.tokenizer is None else "--tokenizer",
        )
        return Scorer(metrics, scored, num_references=len(text.references))


def parse_set(text: str) -> str | HeldOutSection:
    """A set given by name, or written as an item of `evaluation.sets`.

    Raises:
        UserError: the text is neither.
    """
    if not text.lstrip().startswith("{"):
        return text
    section: EvaluationSection = parse_option("--set", [f"sets[0]={text}"], EvaluationSection)
    return section.sets[0]


def set_of_lines(
    engine: Engine,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    languages: tuple[str | None, str | None],
) -> SetText:
    """A set of lines, with the run's tag; see `trainer.evaluation.sets.tagged`.

    Args:
        engine: of the run.
        sources, references: the lines.
        languages: of source and target; None for the run's.
    """
    prepare = engine.config.prepare
    source, target = languages[0] or prepare.source_language, languages[1] or prepare.target_language
    lines = tagged(sources, target, prepare, engine.tokenizer)
    return SetText(name="files", languages=(source, target), sources=lines, references=references)


def settings_of(engine: Engine, text: SetText) -> TranslationSettings:
    """How a set is translated: with the tags of its languages.

    Raises:
        UserError: the model does not know these languages.
    """
    prepare, (source, target) = engine.config.prepare, text.languages
    tags = language_tags(prepare, engine.tokenizer, source=source, target=target) if prepare.tag_both_sides else None
    return TranslationSettings(section=engine.section, tags=tags)


def translated(engine: Engine, text: SetText, settings: TranslationSettings) -> list[str]:
    """The translation of each line of a set as it is, without the run's modifiers, as in training."""
    [by_line] = engine.translate([Chunk(sources=list(text.sources))], settings._replace(modifies=False))
    return [translations[0].text for translations in by_line]


class Evaluated(NamedTuple):
    """A set, translated and scored."""

    text: SetText
    hypotheses: Sequence[str]
    figures: dict[str, Any]
    """Scores, rounded for reading, each with its signature; how many sources were cut, and how many loop."""
    seconds: float
    """Of translating."""


def score_set(engine: Engine, text: SetText, wanted: Wanted, settings: TranslationSettings) -> Evaluated:
    """Translate and score a set; the engine's counts are then those of the set.

    Raises:
        UserError: a metric cannot be computed here.
    """
    scorer = wanted.scorer(engine.config.evaluation, text)
    engine.counts = SourceCounts()
    begin = time.monotonic()
    hypotheses = translated(engine, text, settings)
    seconds = time.monotonic() - begin
    scores = scorer.score(text.sources, hypotheses, text.references)
    lines = list(lines_of(text.name, text.languages, text.sources, hypotheses, text.references))
    scores |= {one.name: Score(value=score_by(one, lines), signature=one.signature) for one in wanted.commands}
    figures: dict[str, Any] = {}
    metrics: list[Metric | QueuedMetric] = [*scorer.metrics, *wanted.commands]
    for metric in metrics:
        key, value = metric.key(), scores[metric.key()].value
        rounded = round(value, metric.digits) if math.isfinite(value) else None
        figures |= {key: rounded, f"{key}{SIGNATURE}": scores[key].signature}
    figures["truncated"] = engine.counts.truncated
    figures["repeated"] = sum(map(is_repeated, hypotheses))
    return Evaluated(text=text, hypotheses=hypotheses, figures=figures, seconds=seconds)


def is_repeated(text: str) -> bool:
    """Whether up to four words of a text come four times in a row, as where a search loops."""
    return _LOOP.search(text) is not None
