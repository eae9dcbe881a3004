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
"""Of an evaluation, in metrics.jsonl: no metric may be called so."""


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
    """Shortest translation: ratio times source plus `min_length_extra`."""
    min_length_extra: Count = 0
    """Pieces added to the shortest length."""
    max_length_ratio: PositiveFloat = 2.0
    """Longest translation: ratio times source plus `max_length_extra`."""
    max_length_extra: Count = 20
    """Pieces added to the longest length."""
    no_repeat_ngram: Count = 0
    """No sequence of this many pieces occurs twice in a translation; 0 allows everything."""
    sampler: Annotated[Sampler | None, Choice("sampler", is_optional=True)] = None
    """Draw each piece at random in place of searching for the best: a component of model/components, or a plugin."""
    seed: Count = 1
    """Of sampling; each line has random numbers of its own, whatever its batch."""
    batch_tokens: Positive = 4096
    """Padded source tokens of a batch, times the beam."""

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
    """A set to evaluate on: two or more files, one of sacreBLEU's own sets, or what the datasets were prepared with."""

    __pydantic_config__ = STRICT

    name: Name
    """Of its figures, such as bleu/NAME, and of its files in eval/."""
    role: Literal["validation", "test"] = "validation"
    """What is best and early stopping go by the validation sets alone. Where one of these is named, those that the
    datasets were prepared with are not evaluated, unless they are named too."""
    source: PathText | None = None
    """A file, compressed or not."""
    references: Annotated[list[PathText], BeforeValidator(_listed)] = field(default_factory=list)
    """One file or several, line N of each belonging to line N of the source. The loss is of the first."""
    sacrebleu: str | None = None
    """One of sacreBLEU's sets, such as wmt14/full; fetched where it is not in its cache."""
    prepared: Literal["valid", "test"] | None = None
    """Of every dataset that has such a set."""
    source_language: Language | None = None
    """Unless given, that of the section `prepare`, as the next."""
    target_language: Language | None = None
    """Unless given, that of the section `prepare`."""
    tag: Tag | None = None
    """Stands before every source line of files and of sacreBLEU's sets, as `prepare.target_tag` does in the data."""

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
    """A metric that is a command, such as a neural one: run beside training, so that no GPU waits for it.

    It reads JSON lines (set, languages, source, hypothesis, references) from its standard input, and answers with a
    number for each, whose mean is the score, or with one line `{"scores": {SET: number}}`.
    """

    __pydantic_config__ = STRICT

    name: MetricName
    """What its figures are called."""
    command: Annotated[list[str], BeforeValidator(_split)]
    """The program and its arguments, without a shell."""
    higher_is_better: bool = True
    """Whether more is better; else less is."""
    digits: Count = 4
    """Behind the point, where people read it."""
    version: str = ""
    """Of what the command does, for the signature: scores of one signature may be compared."""
    timeout_minutes: PositiveFloat = 60.0
    """Then the command is ended, and the step has no such score."""
    most_waiting: Positive = 4
    """Of more, the oldest is given up; a checkpoint is kept as long as its place among the best is awaited."""
    devices: str = ""
    """`CUDA_VISIBLE_DEVICES` of the command; none, unless one is said that training does not use."""

    @property
    def signature(self) -> str:
        """What the score was computed with."""
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
    """0 evaluates at the end only."""
    search: SearchSection = field(default_factory=SearchSection)
    sets: list[HeldOutSection] = field(default_factory=list)
    """The sets to evaluate on; by default the validation sets of the datasets."""
    perturb: list[Annotated[Modifier, Choice("modifier")]] = field(default_factory=list)
    """Modifiers of text (docs/augmentation.md), each of which makes a copy of every validation set, all of whose pairs
    it changes: NAME-KIND has figures of its own, and nothing goes by them."""
    metrics: list[Annotated[Metric, Choice("metric")]] = field(
        default_factory=lambda: [make("metric", "bleu"), make("metric", "chrf")]
    )
    """What translations are scored by: components of trainer/metrics, or plugins."""
    queued: list[QueuedMetric] = field(default_factory=list)
    """Metrics that are commands, whose scores come late and stand at the step that they belong to."""
    queued_end_minutes: NonNegativeFloat = 5.0
    """A run that has finished waits at most so long for scores that have not come; the rest come at the next start."""
    tokenizer: BleuTokenizer = "auto"
    """Of BLEU, sacreBLEU's; auto follows the script of the target language, by any of its codes: zh, ja-mecab,
    ko-mecab, 13a elsewhere. 13a is of little use where no spaces stand between words (Thai, Khmer): take char,
    flores200 or spm."""
    max_pairs: Positive | None = None
    """Evaluate only on this many pairs of each set, the first."""
    samples: Count = 5
    """Translations shown in TensorBoard: half of them the same at every evaluation, the others by turns."""
    attention_maps: Count = 2
    """Short validation pairs whose attention is drawn in TensorBoard, the same at every evaluation: reading the
    reference, and the translation."""

    @property
    def directions(self) -> dict[str, bool]:
        """Whether higher is better, of every figure that something can go by: see `at_once`, then what is queued."""
        return {**self.at_once, **{metric.name: metric.higher_is_better for metric in self.queued}}

    @property
    def at_once(self) -> dict[str, bool]:
        """Whether higher is better, of the figures that an evaluation ends with: metrics, then loss and nll."""
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
