"""The scores of an evaluation, which may be compared, and which is the best.

Scores may be compared that were measured alike: for each figure one hash says what with. It is of text and languages of
the validation sets, the metric's signature, the search, the model's tokenizer, and whether the weights or their moving
average were scored. The number format, the size of batches and the number of ranks are not part of it: they change a
score by less than its noise.
"""

import dataclasses
import hashlib
import itertools
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from configs import EvaluationSection, RunConfig
from configs.components.training import SIGNATURE
from configs.languages import language
from data_pipeline.prepared.dataset import Dataset
from trainer.checkpoint.state import TrainerState
from trainer.datasets import tokenizer_of
from trainer.evaluation.sets import HeldOutSet
from trainer.metrics.scoring import Score

log = logging.getLogger(__name__)


@dataclass(kw_only=True, frozen=True, slots=True)
class Described:
    """How to display a figure."""

    label: str
    higher_is_better: bool | None = True
    digits: int = 2


OF_REFERENCES = {name: Described(label=name, higher_is_better=False, digits=4) for name in ("loss", "nll")}
"""Figures of an evaluation that are computed on the references, by name."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluation:
    """The scores of one step with their translations: of one set, or the means over several."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    nll: float
    """Cross-entropy without smoothing, in nats; its exponential is the perplexity."""
    scores: Mapping[str, Score]
    """Scores by the names of their figures."""
    sources: Sequence[str]
    references: Sequence[str]
    """The first reference of each pair, if there are several."""
    hypotheses: Sequence[str]
    seconds: float
    role: str = "validation"
    """Role of the set."""
    parts: Mapping[str, "Evaluation"] = field(default_factory=dict)
    """Results by set, if there are several sets."""

    @classmethod
    def mean(cls, parts: Mapping[str, "Evaluation"]) -> "Evaluation":
        """The unweighted means over the validation sets, and all translations of these."""
        each = [part for part in parts.values() if part.role == "validation"]
        return cls(
            loss=_mean([e.loss for e in each]),
            nll=_mean([e.nll for e in each]),
            scores={key: _mean_score([part.scores[key] for part in each]) for key in each[0].scores},
            sources=list(itertools.chain(*(e.sources for e in each))),
            references=list(itertools.chain(*(e.references for e in each))),
            hypotheses=list(itertools.chain(*(e.hypotheses for e in each))),
            seconds=sum(part.seconds for part in parts.values()),
            parts=parts,
        )

    @property
    def mean_over(self) -> list[str]:
        """The names of the validation sets, if the scores are their means; empty for one set."""
        return [name for name, part in self.parts.items() if part.role == "validation"]

    def figures(self) -> dict[str, Any]:
        """Figures for metrics.jsonl and TensorBoard; those of a set are named as in `bleu/NAME`."""
        figures: dict[str, Any] = {
            "loss": self.loss,
            "nll": self.nll,
            "perplexity": float(np.exp(min(self.nll, 700.0))),
        }
        figures["length_ratio_characters"] = sum(map(len, self.hypotheses)) / max(1, sum(map(len, self.references)))
        for key, score in self.scores.items():
            figures |= {key: score.value, f"{key}{SIGNATURE}": score.signature}
        figures |= {"pairs": len(self.references), "seconds": round(self.seconds, 2)}
        if len(self.mean_over) > 1:
            figures["mean_over"] = self.mean_over
        for name, part in self.parts.items():
            figures[f"loss/{name}"] = part.loss
            figures |= {f"{key}/{name}": score.value for key, score in part.scores.items()}
        return figures

    def samples(self, most: int) -> list[tuple[str, str, str]]:
        """Source, reference and translation of some pairs, at even distances."""
        rows = list(zip(self.sources, self.references, self.hypotheses, strict=True))
        most = min(most, len(rows))
        return [rows[number * len(rows) // most] for number in range(most)]


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers))


def _mean_score(scores: Sequence[Score]) -> Score:
    signatures = dict.fromkeys(score.signature for score in scores)
    return Score(value=_mean([score.value for score in scores]), signature="; ".join(signatures))


def described(section: EvaluationSection) -> dict[str, Described]:
    """How to display the figures of metrics, and those by which the best step can be chosen beside them, by name."""
    of_metrics = {
        metric.key(): Described(label=metric.label(), higher_is_better=metric.higher_is_better, digits=metric.digits)
        for metric in section.all_metrics
    }
    return of_metrics | OF_REFERENCES


def last_and_best(config: RunConfig, state: TrainerState) -> tuple[str | None, str | None]:
    """The last and the best of the scores that decide which step is best, in words; None if there are none."""
    scores = state.signed_scores()
    if not scores or config.best_by not in config.evaluation.directions:
        return None, None
    shown = described(config.evaluation)[config.best_by]
    steps = max(scores), max(scores, key=lambda step: (scores[step], -step))
    last, best = (f"{shown.label} {state.best_scores[step]:.{shown.digits}f} at step {step:,}" for step in steps)
    return last, best


def current_plateau(
    scores: Mapping[int, float], *, higher_is_better: bool, min_delta: float, after: int
) -> tuple[int, float, int]:
    """How long a figure has not improved; a score that is not finite does not improve it.

    Args:
        scores: by step.
        higher_is_better: of the figure.
        min_delta: an improvement must be larger than this.
        after: only evaluations of later steps count.

    Returns:
        Number of evaluations since the best score, this (NaN if there is none), and its step.
    """
    sign = 1 if higher_is_better else -1
    best, at, waited = math.nan, 0, 0
    for step in sorted(scores):
        score = scores[step]
        if math.isfinite(score) and (math.isnan(best) or sign * (score - best) > min_delta):
            best, at, waited = score, step, 0
        elif step > after:
            waited += 1
    return waited, best, at


def enter_series(
    config: RunConfig, datasets: Sequence[Dataset], held_out: Sequence[HeldOutSet], state: TrainerState
) -> dict[str, str] | None:
    """Leave a state the scores that were measured as this run's are; returns an event if what is best goes by others.

    Args:
        config: the run's.
        datasets: the run's.
        held_out: the sets that are scored; their order and names do not matter.
        state: from the checkpoint, or of a new run; changed in place.
    """
    now, best_by = measured(config, held_out, tokenizer_of(datasets).fingerprint), config.best_by
    left = state.measured.get(state.best_by) if state.best_scores else None
    is_same = {figure: state.measured.get(figure) == digest for figure, digest in now.items()}
    state.scores = {figure: state.scores.get(figure, {}) if same else {} for figure, same in is_same.items()}
    state.measured, state.best_by, state.lowest_is_best = now, best_by, not config.evaluation.directions[best_by]
    if left in (None, now[best_by]):
        return None
    state.series_start = state.step
    known = f"{len(state.best_scores)} scores are known" if state.best_scores else "it begins without scores"
    reason = f"what is best goes by {best_by} as it is measured now, and not by the scores so far: {known}"
    log.warning("%s", reason)
    return {"event": "score_series", "series": now[best_by], "reason": reason}


def measured(config: RunConfig, held_out: Sequence[HeldOutSet], tokenizer: str) -> dict[str, str]:
    """By figure, a hash of what this run's scores are measured with; for the arguments see `enter_series`."""
    section, sets = config.evaluation, [one for one in held_out if one.role == "validation"]
    alike = [sorted(_content(one, section.max_pairs) for one in sets), tokenizer, config.training.ema_decay > 0]
    search = {name: value for name, value in dataclasses.asdict(section.search).items() if name != "batch_tokens"}
    signatures = {one.name: one.signature for one in section.queued} | {"loss": config.loss.signature()}
    signatures |= {m.key(): str(sorted({one.scorer.signatures[m.key()] for one in sets})) for m in section.metrics}
    hashes = {}
    for figure in section.directions:
        of_figure = [figure, signatures.get(figure), None if figure in OF_REFERENCES else search]
        hashes[figure] = hashlib.sha256(json.dumps([*alike, *of_figure], default=str).encode()).hexdigest()[:12]
    return hashes


def _content(held_out: HeldOutSet, max_pairs: int | None) -> str:
    """A set's languages and the lines that are scored."""
    codes = [dataclasses.astuple(language(code)) for code in held_out.languages]
    lines = (held_out.sources, *held_out.references)
    return json.dumps([codes, *(list(column[:max_pairs]) for column in lines)])
