"""The base class of metrics of translations, and the names of their figures."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol

from pydantic import Field

from configs.components.registry import Component, make
from configs.errors import UserError

MetricName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$", max_length=64)]
Lines = Sequence[str]
"""Lines of text, one for each sentence."""
SIGNATURE = "_signature"
"""Suffix of the key that holds a figure's signature."""


class Scoring(Protocol):
    """Computes a metric: one of sacreBLEU's metrics, or any object with these two methods."""

    def corpus_score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Any:
        """An object whose `score` is the corpus score; line N of each of the references belongs to hypothesis N."""
        ...

    def get_signature(self) -> Any:
        """Whose text says how it was computed: scores of one signature may be compared. Asked after a first score."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class ScoredText:
    """What a metric may know about the translations to score."""

    target_language: str
    """Any code of the language: see `configs.languages`."""
    tokenizer: str = "auto"
    """What `evaluation.tokenizer` says."""
    tokenizer_option: str = "evaluation.tokenizer"
    """The option or field that gave it, for messages."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Metric(Component):
    """A metric of translations against references. It sees only text."""

    name: MetricName | None = None
    """The name of its figures; by default its kind. Needed if two would have the same name."""

    title: ClassVar[str] = ""
    """Its display name."""
    higher_is_better: ClassVar[bool | None] = True
    """None: neither is better, so that it cannot decide which step is best."""
    digits: ClassVar[int] = 2
    """Decimals in displayed scores."""

    def key(self) -> str:
        """The name of its figures in metrics.jsonl and wherever else programs read."""
        return self.name or self.kind

    def label(self) -> str:
        """Its displayed name."""
        return self.name or self.title or self.kind

    def build(self, text: ScoredText) -> Scoring:
        """The object that computes it.

        Args:
            text: the text to score.

        Raises:
            UserError: it cannot be computed here: a package or a file is missing.
        """
        raise NotImplementedError

    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        """The score of a corpus; to be overridden by metrics that need the sources.

        Args:
            scoring: from `build`.
            sources: what was translated.
            hypotheses: its translations, cased and detokenised.
            references: one or more of each, as lists of lines.
        """
        return float(scoring.corpus_score(hypotheses, references).score)

    def lowercased(self) -> "Metric":
        """The same metric, ignoring case if it has a field `lowercase`."""
        fields = {field.name for field in dataclasses.fields(self)}
        return dataclasses.replace(self, lowercase=True) if "lowercase" in fields else self  # type: ignore[call-arg]

    def doubt(self, scoring: Scoring, references: Sequence[Sequence[str]]) -> str | None:
        """Why its scores mean little with such references; None if they do not."""
        return None


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Described:
    """How to format a metric's figures."""

    label: str
    higher_is_better: bool | None = True
    digits: int = 2


def metric_keys(figures: Mapping[str, Any]) -> list[str]:
    """The metrics in an evaluation's figures, in order: the figures that have a signature."""
    return [key for key in figures if f"{key}{SIGNATURE}" in figures]


OF_REFERENCES = {name: Described(label=name, higher_is_better=False, digits=4) for name in ("loss", "nll")}
"""Figures of an evaluation that are of the references, by name."""


def describe_metrics(entries: object, queued: object = None) -> dict[str, Described]:
    """How to format the metrics of a run, by the names of their figures.

    Args:
        entries: of `evaluation.metrics` in a resolved configuration, however broken, or of another version.
        queued: those of `evaluation.queued`.
    """
    found = {}
    for entry in entries if isinstance(entries, list) else [{"kind": "bleu"}, {"kind": "chrf"}]:
        fields = {"kind": entry} if isinstance(entry, str) else dict(entry) if isinstance(entry, dict) else {}
        kind = str(fields.pop("kind", ""))
        try:
            metric: Metric = make("metric", kind, **fields)
        except (UserError, TypeError):  # from a package that is not installed here
            name = str(fields.get("name") or kind)
            found[name] = Described(label=name)
        else:
            described = Described(label=metric.label(), higher_is_better=metric.higher_is_better, digits=metric.digits)
            found[metric.key()] = described
    for entry in queued if isinstance(queued, list) else []:
        fields = entry if isinstance(entry, dict) else {}
        name, digits = str(fields.get("name")), fields.get("digits", 4)
        found[name] = Described(
            label=name,
            higher_is_better=bool(fields.get("higher_is_better", True)),
            digits=digits if isinstance(digits, int) else 4,
        )
    return found
