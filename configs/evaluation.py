"""The sections about translating: how it is searched, how translations are scored, and what ends by scores.

See `configs.schema` for the rules of all sections.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from configs.components import Choice, Metric, Modifier, Sampler, TextModifier, make
from configs.components.metric import OF_REFERENCES, SIGNATURE, MetricName
from configs.data import Tag
from configs.fields import STRICT, Count, Language, Name, NonNegativeFloat, PathText, Positive, PositiveFloat

BleuTokenizer = Literal[
    "auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "flores101", "flores200", "spm", "spBLEU-1K", "none"
]


_OTHER_FIGURES = frozenset(
    {
        "kind", "step", "loss", "nll", "perplexity", "accuracy", "length_ratio_characters", "pairs", "seconds",
        "series", "total_target_tokens", "phase", "phase_number",
    }
)  # fmt: skip
"""Other keys of an evaluation in metrics.jsonl, which no metric's name may be."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SearchSection:
    """Greedy search (beam 1), beam search, or sampling. Lengths are in pieces, EOS counted."""

    __pydantic_config__ = STRICT

    beam: Annotated[int, Field(ge=1, le=256)] = 1
    """Hypotheses kept; 1 is greedy."""
    patience: NonNegativeFloat = 1.0
    """A beam search ends when this times the beam have ended (Kasai et al., 2022); 0: when no open one can win."""
    length_penalty: NonNegativeFloat = 1.0
    """alpha; 0 compares bare sums of log-probabilities."""
    length_penalty_kind: Literal["gnmt", "mean"] = "gnmt"
    """Divide by ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14), or by length^alpha."""
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
    sampler: Annotated[Sampler | None, Choice("sampler", is_optional=True)] = None
    """Draw each piece at random instead of searching: a component of model/components, or a plugin."""
    seed: Count = 1
    """Seed of sampling; each line has its own random numbers, whatever its batch."""
    batch_tokens: Positive = 4096
    """Maximum of padded source tokens times the beam in a batch."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.beam > self.batch_tokens:
            yield f"beam: {self.beam} is more than batch_tokens={self.batch_tokens}; allowed is at most that"
        if self.sampler is not None and self.beam > 1:
            yield f"beam: {self.beam} with a sampler; allowed is 1"
        for name in ("length_ratio", "length_extra"):
            shortest, longest = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if shortest > longest:
                yield f"min_{name}: {shortest} is more than max_{name}={longest}; allowed is at most that"


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


@dataclass(kw_only=True, slots=True, frozen=True)
class HeldOutSection:
    """A set to evaluate on: from files, one of sacreBLEU's sets, or the datasets' prepared set."""

    __pydantic_config__ = STRICT

    name: Name
    """The name in its figures, such as bleu/NAME, and in its files in eval/."""
    role: Literal["validation", "test"] = "validation"
    """Only validation sets decide which step is best, and early stopping. If one is named here, the datasets' prepared
    validation sets are evaluated only if they are named too.
    """
    source: PathText | None = None
    """A file, compressed or not."""
    references: Annotated[list[PathText], BeforeValidator(_listed)] = field(default_factory=list)
    """One or more files, parallel to the source. The loss is computed on the first."""
    sacrebleu: str | None = None
    """One of sacreBLEU's sets, such as wmt14/full; downloaded if it is not in sacreBLEU's cache."""
    prepared: Literal["valid", "test"] | None = None
    """The prepared set of this name, of every dataset that has it."""
    source_language: Language | None = None
    """Default: that of the section `prepare`."""
    target_language: Language | None = None
    """Default: that of the section `prepare`."""
    tag: Tag | None = None
    """Put before every source line of files and of sacreBLEU's sets, as `prepare.target_tag` is in the data."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        forms = {
            "source and references": bool(self.source or self.references),
            "sacrebleu": self.sacrebleu is not None,
            "prepared": self.prepared is not None,
        }
        given = [form for form, is_given in forms.items() if is_given]
        if len(given) != 1:
            yield f"name: {self.name} has {' and '.join(given) or 'no text'}; allowed is one of {', '.join(forms)}"
        elif self.source is None and self.references:
            yield "source: missing beside references; name a file"
        elif self.source is not None and not self.references:
            yield "references: none beside source; name at least one file"
        for field_ in ("source_language", "target_language", "tag") if self.prepared is not None else ():
            if getattr(self, field_) is not None:
                yield f"{field_}: {getattr(self, field_)} with prepared; allowed without, as the dataset has it"


def _split(value: Any) -> Any:
    return shlex.split(value) if isinstance(value, str) else value


@dataclass(kw_only=True, slots=True, frozen=True)
class QueuedMetric:
    """A metric that is a command, such as a neural one: it runs while training goes on, so that no GPU waits for it.

    It reads JSON lines (set, languages, source, hypothesis, references) from standard input, and answers with a number
    for each, whose mean is the score, or with one line `{"scores": {SET: number}}`.
    """

    __pydantic_config__ = STRICT

    name: MetricName
    """The name of its figures."""
    command: Annotated[list[str], BeforeValidator(_split)]
    """The program and its arguments, without a shell."""
    higher_is_better: bool = True
    """Whether higher scores are better."""
    digits: Count = 4
    """Decimals in displayed scores."""
    version: str = ""
    """Version of what the command computes, for the signature: only scores of one signature may be compared."""
    timeout_minutes: PositiveFloat = 60.0
    """Time limit after which the command is killed, and the step has no such score."""
    most_waiting: Positive = 4
    """Waiting requests at most; of more, the oldest is dropped. Checkpoints that may become the best are kept."""
    devices: str = ""
    """`CUDA_VISIBLE_DEVICES` of the command, naming GPUs that training does not use; by default no GPU."""

    @property
    def signature(self) -> str:
        """How the score was computed."""
        version = f"|version:{self.version}" if self.version else ""
        return f"command:{shlex.join(self.command)}{version}"

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if not self.command:
            yield f"command: {self.name} has none; allowed is a program and its arguments"


@dataclass(kw_only=True, slots=True, frozen=True)
class EvaluationSection:
    """Loss and scores on the validation set while training."""

    __pydantic_config__ = STRICT

    every_updates: Count = 1000
    """Updates between evaluations; 0 evaluates only at the end."""
    search: SearchSection = field(default_factory=SearchSection)
    sets: list[HeldOutSection] = field(default_factory=list)
    """The sets to evaluate on; by default the validation sets of the datasets."""
    perturb: list[Annotated[Modifier, Choice("modifier")]] = field(default_factory=list)
    """Modifiers of text (docs/augmentation.md). Each makes a modified copy of every validation set, NAME-KIND, with its
    own figures, which do not decide anything.
    """
    metrics: list[Annotated[Metric, Choice("metric")]] = field(
        default_factory=lambda: [make("metric", "bleu"), make("metric", "chrf")]
    )
    """Metrics of translations: components of trainer/metrics, or plugins."""
    queued: list[QueuedMetric] = field(default_factory=list)
    """Metrics that are commands, whose scores come late and are logged at the step that they are of."""
    queued_end_minutes: NonNegativeFloat = 5.0
    """How long a finished run waits for outstanding scores; the rest come at the next start."""
    tokenizer: BleuTokenizer = "auto"
    """BLEU's tokenizer, one of sacreBLEU's; auto chooses by the script of the target language: zh, ja-mecab, ko-mecab,
    else 13a. 13a is of little use for languages without spaces between words (Thai, Khmer): use char, flores200 or
    spm.
    """
    max_pairs: Positive | None = None
    """Evaluate only on the first pairs of each set, this many."""
    samples: Count = 5
    """Number of translations shown in TensorBoard: half of them always the same, half changing."""
    attention_maps: Count = 2
    """Number of short validation pairs whose attention is drawn in TensorBoard, always the same: for the reference, and
    for the translation.
    """

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, for every figure that can decide something: `at_once`, then queued metrics."""
        return {**self.at_once, **{metric.name: metric.higher_is_better for metric in self.queued}}

    @property
    def at_once(self) -> dict[str, bool]:
        """Whether higher is better, for the figures known at the end of an evaluation: metrics, then loss and nll."""
        of_metrics = {metric.key(): metric.higher_is_better for metric in self.metrics}
        of_references = {name: one.higher_is_better for name, one in OF_REFERENCES.items()}
        return {name: is_higher for name, is_higher in {**of_metrics, **of_references}.items() if is_higher is not None}

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if not self.metrics:
            yield "metrics: none; give at least one"
        for number, modifier in enumerate(self.perturb):
            if not isinstance(modifier, TextModifier):
                yield f"perturb.{number}: {modifier.kind} changes no text by itself; name one that does, as typos"
            if modifier.datasets:
                yield (
                    f"perturb.{number}.datasets: {modifier.datasets[0]}; every validation set has a copy, so leave "
                    "datasets out"
                )
        keys = {f"metrics.{number}.name": metric.key() for number, metric in enumerate(self.metrics)}
        keys |= {f"queued.{number}.name": metric.name for number, metric in enumerate(self.queued)}
        taken = set(_OTHER_FIGURES)
        for place, key in keys.items():
            if key in taken or key.endswith(SIGNATURE):
                yield f"{place}: the figures of another are called {key}; give it a name of its own"
            taken.add(key)
        names = [one.name for one in self.sets]
        for number, name in enumerate(names):
            if name in names[:number]:
                yield f"sets.{number}.name: {name} is the name of another; give it one of its own"


@dataclass(kw_only=True, slots=True, frozen=True)
class EarlyStoppingSection:
    """The run ends when a figure of the validation set has not improved for some evaluations."""

    __pydantic_config__ = STRICT

    metric: str | None = None
    """The name of one of `evaluation.metrics`, loss or nll; by default `checkpoint.best_by`."""
    patience: Positive = 10
    """Evaluations in a row without an improvement."""
    min_delta: NonNegativeFloat = 0.0
    """An improvement must be larger than this, in the figure's unit."""
    after: Count = 0
    """Evaluations before this update do not count towards `patience`; the best of them still counts."""
