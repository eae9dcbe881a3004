"""The sections about evaluation: search, held-out sets, metrics and early stopping.

`configs.schema` says what all sections have in common.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from configs.components import Choice, Metric, make
from configs.components.training import SIGNATURE, MetricName
from configs.data import PlateauSection, Tag
from configs.fields import STRICT, Count, Language, Name, NonNegativeFloat, PathText, Positive, PositiveFloat
from configs.reading.variables import as_saved

BleuTokenizer = Literal[
    "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "spm", "spBLEU-1K", "none"
]


_OTHER_FIGURES = frozenset(
    {
        "kind", "step", "loss", "nll", "perplexity", "length_ratio_characters", "pairs", "seconds",
        "series", "total_target_tokens", "phase", "phase_number",
    }
)  # fmt: skip
"""Other keys of an evaluation in metrics.jsonl, which are not allowed as names of metrics."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SearchSection:
    """Greedy search, beam search or sampling. Lengths are in pieces, including EOS."""

    __pydantic_config__ = STRICT

    beam: Annotated[int, Field(ge=1, le=256)] = 1
    """Beam size; 1 is greedy search."""
    patience: NonNegativeFloat = 1.0
    """A beam search stops when patience x beam translations are complete (Kasai et al., 2022) or no open one can win; 0
    uses only the second rule."""
    length_penalty: NonNegativeFloat = 1.0
    """Exponent alpha of the length penalty; 0 compares sums of log-probabilities without a penalty."""
    length_penalty_kind: Literal["gnmt", "mean"] = "gnmt"
    """gnmt divides by ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14), mean by length^alpha."""
    min_length_ratio: NonNegativeFloat = 0.0
    """Minimum length of a translation: this times the source's length, plus `min_length_extra`."""
    min_length_extra: Count = 0
    """Pieces added to the minimum length."""
    max_length_ratio: PositiveFloat = 2.0
    """Maximum length of a translation: this times the source's length, plus `max_length_extra`."""
    max_length_extra: Count = 20
    """Pieces added to the maximum length."""
    no_repeat_ngram: Count = 0
    """No sequence of this many pieces occurs twice in a translation; 0 allows everything."""
    sampler: Annotated[Any, Choice("sampler", is_optional=True)] = None
    """Draw each piece at random instead of searching: a component of model/components, or a plugin."""
    seed: Count = 1
    """Seed of sampling; each line has its own random numbers, whatever its batch."""
    batch_tokens: Positive = 4096
    """Maximum size of a batch: its padded source tokens times the beam size."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if self.beam > self.batch_tokens:
            yield f"beam: {self.beam} is more than batch_tokens={self.batch_tokens}; lower beam or raise batch_tokens"
        if self.sampler is not None and self.beam > 1:
            yield f"beam: {self.beam} with a sampler; set it to 1, or remove the sampler"
        for name in ("length_ratio", "length_extra"):
            shortest, longest = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if shortest > longest:
                yield f"min_{name}: {shortest} is more than max_{name}={longest}; lower the one or raise the other"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


@dataclass(kw_only=True, slots=True, frozen=True)
class HeldOutSection:
    """A held-out set: from files, one of sacreBLEU's sets, or a prepared set of the datasets."""

    __pydantic_config__ = STRICT

    name: Name
    """Name of the set in its figures, such as bleu/NAME, and in its files in eval/."""
    role: Literal["validation", "test"] = "validation"
    """Only validation sets decide which checkpoint is best, and when to stop early. If a validation set is given here,
    the datasets' prepared validation sets are evaluated only if they are listed too.
    """
    source: PathText | None = None
    """File with the sources, which may be compressed."""
    references: Annotated[list[PathText], BeforeValidator(_listed)] = field(default_factory=list)
    """One or more files with references, line by line. The loss is computed on the first."""
    prepared: Literal["valid", "test"] | None = None
    """The prepared set of this name, of every dataset that has one."""
    source_language: Language | None = None
    """Language of the sources; by default `prepare.source_language`."""
    target_language: Language | None = None
    """Language of the references; by default `prepare.target_language`."""
    tag: Tag | None = None
    """Tag put before every source line, like `prepare.target_tag`; for files only. By default
    `prepare.target_tag`, before lines that begin with no tag, if the set's target language is
    `prepare.target_language`.
    """

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        forms = {
            "source and references": bool(self.source or self.references),
            "prepared": self.prepared is not None,
        }
        given = [form for form, is_given in forms.items() if is_given]
        if len(given) != 1:
            yield f"name: {self.name} has {' and '.join(given) or 'no text'}; give one of {', '.join(forms)}"
        elif (self.source is None) != (not self.references):
            yield "source: given with references, or without both; name files of both"
        for field_ in ("source_language", "target_language", "tag") if self.prepared is not None else ():
            if getattr(self, field_) is not None:
                yield f"{field_}: {getattr(self, field_)} with prepared; remove it, because the dataset defines it"


def _split(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


@dataclass(kw_only=True, slots=True, frozen=True)
class QueuedMetric:
    """A metric computed by a command, such as a neural one, while training continues, so that no GPU waits for it.

    The command reads JSON lines (set, languages, source, hypothesis, references) from standard input, and writes one
    number for each: a set's score is their mean.
    """

    __pydantic_config__ = STRICT

    digits: ClassVar[int] = 4
    """Decimals in displayed scores."""
    name: MetricName
    """Name of the metric's figures."""
    command: Annotated[list[str], BeforeValidator(_split)]
    """The program and its arguments; they are not passed through a shell."""
    higher_is_better: bool = True
    """Whether higher scores are better."""
    version: str = ""
    """Version of the metric, for the signature: only scores with the same signature are compared."""
    timeout_minutes: PositiveFloat = 60.0
    """Time limit after which the command is killed; then the step has no such score."""
    devices: str = ""
    """`CUDA_VISIBLE_DEVICES` of the command: GPUs that training does not use; by default none."""

    def key(self) -> str:
        """The name of its figures, as of `configs.components.Metric`."""
        return self.name

    label = key

    @property
    def signature(self) -> str:
        """How the score was computed."""
        version = f"|version:{self.version}" if self.version else ""
        return f"command:{shlex.join(as_saved(self.command))}{version}"

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if not self.command:
            yield f"command: {self.name} has none; give a program and its arguments"


@dataclass(kw_only=True, slots=True, frozen=True)
class EvaluationSection:
    """Evaluation during training: loss and scores on held-out sets."""

    __pydantic_config__ = STRICT

    every_updates: Count = 1000
    """Updates between evaluations; 0 evaluates only at the end."""
    search: SearchSection = field(default_factory=SearchSection)
    sets: list[HeldOutSection] = field(default_factory=list)
    """The held-out sets to evaluate on; by default the prepared validation sets of the datasets."""
    metrics: list[Annotated[Metric, Choice("metric")]] = field(
        default_factory=lambda: [make("metric", "bleu"), make("metric", "chrf")]
    )
    """Metrics of translations: components of trainer/metrics, or plugins."""
    queued: list[QueuedMetric] = field(default_factory=list)
    """Metrics computed by commands, one at a time. Their scores come late, and are logged at the step that they belong
    to; `zeromt evaluate --metrics` computes those that a stop has lost."""
    queued_end_minutes: NonNegativeFloat = 5.0
    """How long a finished run waits for outstanding scores; the rest are lost."""
    tokenizer: BleuTokenizer = "auto"
    """BLEU's tokenizer, one of sacreBLEU's. auto chooses by the script of the target language: zh, ja-mecab, ko-mecab,
    char for scripts without spaces between words (Thai, Khmer), else 13a.
    """
    max_pairs: Positive | None = None
    """Evaluate only on this many pairs of each set, the first ones."""
    samples: Count = 5
    """Number of translations shown in TensorBoard, of the same pairs at each evaluation."""

    @property
    def all_metrics(self) -> list[Metric | QueuedMetric]:
        """The metrics, then the queued ones."""
        return [*self.metrics, *self.queued]

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, for each possible `checkpoint.best_by`: those of `at_once`, then queued metrics."""
        return {**self.at_once, **{metric.name: metric.higher_is_better for metric in self.queued}}

    @property
    def at_once(self) -> dict[str, bool]:
        """Whether higher is better, for the figures that an evaluation ends with: metrics, then loss and nll."""
        of_metrics = {metric.key(): metric.higher_is_better for metric in self.metrics}
        of_all = {**of_metrics, "loss": False, "nll": False}
        return {name: is_higher for name, is_higher in of_all.items() if is_higher is not None}

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if not self.metrics:
            yield "metrics: none; give at least one"
        keys = {f"metrics.{number}.name": metric.key() for number, metric in enumerate(self.metrics)}
        keys |= {f"queued.{number}.name": metric.name for number, metric in enumerate(self.queued)}
        taken = set(_OTHER_FIGURES)
        for place, key in keys.items():
            if key in taken or key.endswith(SIGNATURE):
                yield f"{place}: {key} is the name of another figure, too; give it one of its own"
            taken.add(key)
        names = [one.name for one in self.sets]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield f"sets.{number}.name: {name} is the name of another set, too; give it one of its own"


@dataclass(kw_only=True, slots=True, frozen=True)
class EarlyStoppingSection(PlateauSection):
    """Ends the run when a figure of the validation sets has not improved for some evaluations."""

    patience: Positive = 10
    """Number of evaluations in a row without an improvement."""
    after: Count = 0
    """Evaluations before this update do not count towards `patience`, but they can be the best so far."""
