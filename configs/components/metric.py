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
        """An object whose `score` is the corpus score; line N of each list of references belongs to hypothesis N."""
        ...

    def get_signature(self) -> Any:
        """An object whose text says how scores are computed: only scores with the same signature are compared.

        Called only after a first `corpus_score`.
        """
        ...


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class ScoredText:
    """What a metric can know about the translations to score."""

    target_language: str
    """Code of the language, in any form of `configs.languages`."""
    tokenizer: str = "auto"
    """The value of `evaluation.tokenizer`."""
    tokenizer_option: str = "evaluation.tokenizer"
    """The option or field that the value comes from, for messages."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Metric(Component):
    """A metric that compares translations with references. It receives only text."""

    name: MetricName | None = None
    """Name of the metric's figures; by default its kind. Needed if two metrics would have the same name."""

    title: ClassVar[str] = ""
    """Name to display."""
    higher_is_better: ClassVar[bool | None] = True
    """Whether higher scores are better; None if neither is: then it cannot decide which checkpoint is best."""
    digits: ClassVar[int] = 2
    """Decimals in displayed scores."""

    def key(self) -> str:
        """The name of the metric's figures in metrics.jsonl and in other files for programs."""
        return self.name or self.kind

    def label(self) -> str:
        """The name that is displayed to people."""
        return self.name or self.title or self.kind

    def build(self, text: ScoredText) -> Scoring:
        """The object that computes the metric.

        Args:
            text: the text to score.

        Raises:
            UserError: the metric cannot be computed here, because a package or a file is missing.
        """
        raise NotImplementedError

    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        """The score of a corpus; metrics that need the sources override this.

        Args:
            scoring: the object from `build`.
            sources: the sentences that were translated.
            hypotheses: their translations, cased and detokenized.
            references: one or more lists of references.
        """
        return float(scoring.corpus_score(hypotheses, references).score)

    def lowercased(self) -> "Metric":
        """The same metric ignoring case, if it has a field `lowercase`; else the metric itself."""
        fields = {field.name for field in dataclasses.fields(self)}
        return dataclasses.replace(self, lowercase=True) if "lowercase" in fields else self  # type: ignore[call-arg]

    def doubt(self, scoring: Scoring, references: Sequence[Sequence[str]]) -> str | None:
        """Why scores with these references mean little, for a warning; None if there is no such reason."""
        return None


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Described:
    """How to display a metric's figures."""

    label: str
    higher_is_better: bool | None = True
    digits: int = 2


def metric_keys(figures: Mapping[str, Any]) -> list[str]:
    """The names of the metrics among an evaluation's figures, in order: those that have a signature."""
    return [key for key in figures if f"{key}{SIGNATURE}" in figures]


OF_REFERENCES = {name: Described(label=name, higher_is_better=False, digits=4) for name in ("loss", "nll")}
"""Figures of an evaluation that are computed on the references, by name."""


def describe_metrics(entries: object, queued: object = None) -> dict[str, Described]:
    """How to display the metrics of a run, by the names of their figures.

    Args:
        entries: `evaluation.metrics` of a resolved configuration, which may be invalid or of another version.
        queued: `evaluation.queued`, likewise.
    """
    displays = {}
    for entry in entries if isinstance(entries, list) else [{"kind": "bleu"}, {"kind": "chrf"}]:
        fields = {"kind": entry} if isinstance(entry, str) else dict(entry) if isinstance(entry, dict) else {}
        kind = str(fields.pop("kind", ""))
        try:
            metric: Metric = make("metric", kind, **fields)
        except (UserError, TypeError):  # a plugin that is not loaded, or a package that is not installed
            name = str(fields.get("name") or kind)
            displays[name] = Described(label=name)
        else:
            described = Described(label=metric.label(), higher_is_better=metric.higher_is_better, digits=metric.digits)
            displays[metric.key()] = described
    for entry in queued if isinstance(queued, list) else []:
        fields = entry if isinstance(entry, dict) else {}
        name, digits = str(fields.get("name")), fields.get("digits", 4)
        displays[name] = Described(
            label=name,
            higher_is_better=bool(fields.get("higher_is_better", True)),
            digits=digits if isinstance(digits, int) else 4,
        )
    return displays
