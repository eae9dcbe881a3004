"""The outcome of an evaluation, on one held-out set or several."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from configs.components.training import SIGNATURE
from trainer.metrics.scoring import Score
from trainer.runs.metrics_file import MEAN_OVER

T = TypeVar("T")


@dataclass(kw_only=True, slots=True, frozen=True)
class Evaluation:
    """The scores of one step with their translations: of one set, or the means over several."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    nll: float
    """Cross-entropy without smoothing, in nats; its exponential is the perplexity."""
    accuracy: float = 0.0
    """Fraction of target tokens to which the model gives the highest probability, given those before."""
    scores: Mapping[str, Score]
    """Scores by the names of their figures."""
    sources: Sequence[str]
    references: Sequence[str]
    """The first reference of each pair, if there are several."""
    hypotheses: Sequence[str]
    seconds: float
    languages: str = ""
    """Source and target, such as en-fr."""
    role: str = "validation"
    """Role of the set."""
    parts: Mapping[str, "Evaluation"] = field(default_factory=dict)
    """Results by set, if there are several sets."""

    @classmethod
    def mean(cls, parts: Mapping[str, "Evaluation"]) -> "Evaluation":
        """The unweighted means over the validation sets, and their translations interleaved."""
        each = [part for part in parts.values() if part.role == "validation"]
        return cls(
            loss=_mean([e.loss for e in each]),
            nll=_mean([e.nll for e in each]),
            accuracy=_mean([e.accuracy for e in each]),
            scores=_mean_scores(each),
            sources=_in_turns([e.sources for e in each]),
            references=_in_turns([e.references for e in each]),
            hypotheses=_in_turns([e.hypotheses for e in each]),
            seconds=sum(part.seconds for part in parts.values()),
            parts=parts,
        )

    @property
    def mean_over(self) -> list[str]:
        """The names of the validation sets, of which the scores are the means; empty for one set."""
        return [name for name, part in self.parts.items() if part.role == "validation"]

    def figures(self) -> dict[str, Any]:
        """Figures for metrics.jsonl and TensorBoard; those of a set are named as in `bleu/NAME`.

        With several language pairs there are also the means over each pair's validation sets, named as in
        `bleu/pair/en-fr`.
        """
        figures: dict[str, Any] = {
            "loss": self.loss,
            "nll": self.nll,
            "perplexity": float(np.exp(min(self.nll, 700.0))),
            "accuracy": self.accuracy,
        }
        figures["length_ratio_characters"] = sum(map(len, self.hypotheses)) / max(1, sum(map(len, self.references)))
        for key, score in self.scores.items():
            figures |= {key: score.value, f"{key}{SIGNATURE}": score.signature}
        figures |= {"pairs": len(self.references), "seconds": round(self.seconds, 2)}
        if len(self.mean_over) > 1:
            figures[MEAN_OVER] = self.mean_over
        for name, part in self.parts.items():
            figures |= {f"loss/{name}": part.loss, f"accuracy/{name}": part.accuracy}
            figures |= {f"{key}/{name}": score.value for key, score in part.scores.items()}
        for languages, parts in self._by_languages().items():
            figures[f"loss/pair/{languages}"] = _mean([part.loss for part in parts])
            figures |= {f"{key}/pair/{languages}": score.value for key, score in _mean_scores(parts).items()}
        return figures

    def samples(self, most: int, turn: int) -> list[tuple[str, str, str]]:
        """Source, reference and translation of some pairs: half of them always the same, half changing.

        Args:
            most: how many.
            turn: the number of the evaluation.
        """
        rows = list(zip(self.sources, self.references, self.hypotheses, strict=True))
        fixed, rest = rows[: (most + 1) // 2], rows[(most + 1) // 2 :]
        rotating = min(most // 2, len(rest))
        return fixed + [rest[(turn * rotating + number) % len(rest)] for number in range(rotating)]

    def _by_languages(self) -> dict[str, list["Evaluation"]]:
        """The validation sets of each language pair, if there are several pairs."""
        by_languages: dict[str, list[Evaluation]] = {}
        for part in self.parts.values():
            if part.role == "validation":
                by_languages.setdefault(part.languages, []).append(part)
        return by_languages if len(by_languages) > 1 else {}


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers))


def _mean_scores(parts: Sequence[Evaluation]) -> dict[str, Score]:
    """The mean of each metric, with its signature."""
    return {
        key: Score(
            value=_mean([part.scores[key].value for part in parts]),
            signature="; ".join(dict.fromkeys(part.scores[key].signature for part in parts)),
        )
        for key in parts[0].scores
    }


def _in_turns(sets: Sequence[Sequence[T]]) -> list[T]:
    """Interleave: the first of each, the second of each, and so on, so that the first few represent all."""
    rows: Iterator[tuple[T | None, ...]] = itertools.zip_longest(*sets)
    return [one for row in rows for one in row if one is not None]
