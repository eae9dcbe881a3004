"""What `zeromt evaluate` says of a set's translations, whatever made them: scores with their signatures, and speed."""

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs import EvaluationSection, UserError
from configs.components import Metric, ScoredText, make
from configs.components.training import SIGNATURE
from configs.evaluation import QueuedMetric
from configs.process.text import visible
from trainer.evaluation.sets import SetText
from trainer.metrics.command import lines_of, score_by
from trainer.metrics.scoring import Score, Scorer
from zeromt.translating.search import parse_option

_COMMAND = re.compile(r"""\{(?!.*\bkind["']?\s*:).*\bcommand["']?\s*:""", re.DOTALL)
"""An item of `evaluation.queued`, in YAML."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Wanted:
    """The metrics to score by."""

    metrics: Sequence[Metric] | None
    """None: the run's own metrics."""
    tokenizer: str | None
    """BLEU's tokenizer; None: the run's."""
    lowercase: bool
    commands: Sequence[QueuedMetric] = ()

    @classmethod
    def of(cls, texts: Sequence[str] | None, tokenizer: str | None, *, lowercase: bool) -> "Wanted":
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
        return cls(metrics=metrics, tokenizer=tokenizer, lowercase=lowercase, commands=commands)

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
        chosen = [metric.lowercased() for metric in metrics] if self.lowercase else metrics
        return Scorer(chosen, scored, num_references=len(text.references))


def figures_of(
    scorer: Scorer, text: SetText, hypotheses: Sequence[str], commands: Sequence[QueuedMetric]
) -> dict[str, Any]:
    """The scores of a set, rounded for reading, each with its signature.

    Args:
        scorer: of the set.
        text: the set.
        hypotheses: the translation of each source.
        commands: further metrics.
    """
    scores = scorer.score(text.sources, hypotheses, text.references)
    lines = list(lines_of(text.name, text.languages, text.sources, hypotheses, text.references))
    scores |= {one.name: Score(value=score_by(one, lines), signature=one.signature) for one in commands}
    figures: dict[str, Any] = {}
    metrics: list[Metric | QueuedMetric] = [*scorer.metrics, *commands]
    for metric in metrics:
        key, value = metric.key(), scores[metric.key()].value
        rounded = round(value, metric.digits) if math.isfinite(value) else None
        figures |= {key: rounded, f"{key}{SIGNATURE}": scores[key].signature}
    return figures


def show(
    report: Mapping[str, Any],
    sets: Mapping[str, Mapping[str, Any]],
    metrics: Sequence[Metric | QueuedMetric],
    *,
    as_json: bool,
) -> None:
    """Print the scores: JSON for programs; on a terminal, without `--json`, a line a set, with a signature at its end.

    Args:
        report: all of it.
        sets: the figures of each set, by its name.
        metrics: that they are scores of.
        as_json: print JSON on a terminal too.
    """
    if as_json or not sys.stdout.isatty():
        print(json.dumps(report, indent=1), flush=True)
        return
    for name, figures in sets.items():
        scores = "  ".join(f"{m.label()} {_shown(figures[m.key()], m.digits)}" for m in metrics)
        made = f"{figures['pairs']:,} pairs, {figures['sentences_per_second']:.1f} a second"
        signature = figures[f"{metrics[0].key()}{SIGNATURE}"]
        print(visible(f"{name}  {scores}  {made}  ({signature})"), flush=True)


def _shown(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
