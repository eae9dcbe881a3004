"""What a metric of translations is, and what the figures of one are called."""

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
"""Ends the name of what stands beside a metric's figure."""


class Scoring(Protocol):
    """What computes a metric: any of sacreBLEU's metrics, or whatever has these two methods."""

    def corpus_score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Any:
        """An object whose `score` is the corpus score; line N of each of the references belongs to hypothesis N."""
        ...

    def get_signature(self) -> Any:
        """Whose text says how it was computed: scores of one signature may be compared. Asked after a first score."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class ScoredText:
    """What a metric may know of the translations that it is to score."""

    target_language: str
    """By any of its codes: see `configs.languages`."""
    tokenizer: str = "auto"
    """What `evaluation.tokenizer` says."""
    tokenizer_option: str = "evaluation.tokenizer"
    """Where it was said, for messages."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class Metric(Component):
    """A score of translations against references. It says nothing of who translates, and sees no more than text."""

    name: MetricName | None = None
    """The name of its figures; by default its kind. Needed if two would have the same name."""

    title: ClassVar[str] = ""
    """What people call it."""
    higher_is_better: ClassVar[bool | None] = True
    """None: neither is, and nothing can be best by it."""
    digits: ClassVar[int] = 2
    """Behind the point, where people read it."""

    def key(self) -> str:
        """What its figures are called, in metrics.jsonl and wherever else programs read."""
        return self.name or self.kind

    def label(self) -> str:
        """What it is called where people read."""
        return self.name or self.title or self.kind

    def build(self, text: ScoredText) -> Scoring:
        """What computes it.

        Args:
            text: what is to be scored.

        Raises:
            UserError: it cannot be computed here: a package or a file is missing.
        """
        raise NotImplementedError

    def score(self, scoring: Scoring, *, sources: Lines, hypotheses: Lines, references: Sequence[Lines]) -> float:
        """The score of a corpus; a metric that needs the sources overrides it.

        Args:
            scoring: what `build` gave.
            sources: what was translated.
            hypotheses: its translations, cased and detokenised.
            references: one or more of each, as lists of lines.
        """
        return float(scoring.corpus_score(hypotheses, references).score)

    def lowercased(self) -> "Metric":
        """The same metric, blind to case where it has a field `lowercase`."""
        fields = {field.name for field in dataclasses.fields(self)}
        return dataclasses.replace(self, lowercase=True) if "lowercase" in fields else self  # type: ignore[call-arg]

    def doubt(self, scoring: Scoring, references: Sequence[Sequence[str]]) -> str | None:
        """Why its scores would say little of translations with such references; None where they say what they do."""
        return None


@dataclasses.dataclass(kw_only=True, frozen=True, slots=True)
class Described:
    """How to show a metric's figures."""

    label: str
    higher_is_better: bool | None = True
    digits: int = 2


def metric_keys(figures: Mapping[str, Any]) -> list[str]:
    """The metrics in the figures of an evaluation, in their order: those beside whose figure a signature stands."""
    return [key for key in figures if f"{key}{SIGNATURE}" in figures]


OF_REFERENCES = {name: Described(label=name, higher_is_better=False, digits=4) for name in ("loss", "nll")}
"""Figures of an evaluation that are of the references, by name."""


def describe_metrics(entries: object, queued: object = None) -> dict[str, Described]:
    """How to show the metrics of a run, by the names of their figures.

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
        except (UserError, TypeError):  # of a package that is not installed here
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
