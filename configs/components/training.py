"""The base classes of what training is given: optimizers, schedules of the learning rate, metrics, trackers."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from configs.components.registry import Component
from configs.fields import Count, NonNegativeFloat, PositiveFloat

Scope = Literal["element", "row", "matrix"]
"""What an optimizer must see at once to change an element: that alone, its row and its column, or its matrix."""
Stages = tuple[Literal[0, 1, 2, 3], ...]
"""Stages of ZeRO."""
ALL_STAGES: Stages = (0, 1, 2, 3)


@dataclasses.dataclass(kw_only=True, frozen=True)
class Optimizer(Component):
    """An optimizer, and what is known before it is built: what state it keeps, and with which engines it works.

    By default it works element by element and keeps tensors of its parameters' shapes.
    """

    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of matrices; norms and biases have none."""
    clip_norm: NonNegativeFloat = 1.0
    """Maximum norm of the whole gradient, which is scaled down to it; 0 does not clip."""

    states: ClassVar[tuple[str, ...]] = ()
    """Names, in torch's `optimizer.state`, of the tensors that it keeps for each parameter after the first step. They
    are saved, sharded, offloaded and counted by plans; see `states_of`. There must be at least one.
    """
    scope: ClassVar[Scope] = "element"
    """What it must see at once. It decides at which ZeRO stages it is sound: see `stages`."""
    gathers: ClassVar[bool] = False
    """Whether, of pieces of parameters, it gathers what it must see. Then what it builds is given `places` at stages 1
    to 3, and keeps tensors of its parameters' shapes alone; see `trainer.engines.muon`.
    """

    def states_of(self, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors that it keeps of a parameter, by their names in torch's `optimizer.state`.

        By default `states`, each of the parameter's shape; others need a `scope` of rows or matrices. Parameters that
        keep tensors of other names come in groups of their own.

        Args:
            name: of the parameter, as in checkpoints.
            shape: of the whole parameter.
        """
        return dict.fromkeys(self.states, shape)

    @property
    def stages(self) -> Stages:
        """ZeRO stages at which it sees what it must.

        Stages 1 to 3 cut parameters, laid end to end, into flat pieces. At stage 0 it steps on parameters in their own
        shape: themselves in fp32, their fp32 copies in bf16 and fp16.
        """
        return ALL_STAGES if self.scope == "element" or self.gathers else (0,)

    def stage_problem(self, stage: int, *, offload: bool) -> str | None:
        """Why it is not sound with this engine, as the value of `optimizer.kind`; None if it is.

        Args:
            stage: of ZeRO.
            offload: whether what it steps on is in host memory.
        """
        if stage not in self.stages:
            return (
                f"{self.kind} works by {_SEEN[self.scope]}, which engine.zero_stage={stage} cuts into pieces; set "
                "engine.zero_stage=0, or an optimizer that works element by element, such as adamw"
            )
        if offload and stage and self.scope != "element":
            return (
                f"{self.kind} works by {_SEEN[self.scope]}, which ranks do not gather in host memory; set "
                "engine.offload_optimizer=false, or an optimizer that works element by element, such as adamw"
            )
        return None

    def build(self, groups: Sequence[Mapping[str, Any]]) -> Any:
        """The torch.optim.Optimizer, with a learning rate of 0.

        Args:
            groups: parameter groups, each with its `weight_decay`, and as `states` the names of `states_of`.
        """
        raise NotImplementedError


_SEEN: dict[Scope, str] = {"element": "elements", "row": "rows and columns of matrices", "matrix": "whole matrices"}


@dataclasses.dataclass(kw_only=True, frozen=True)
class Schedule(Component):
    """The learning rate as a pure function of applied updates: linear warm-up, then `factor` x peak."""

    warmup_updates: Count = 4000
    """Number of updates over which the learning rate grows linearly to its peak."""
    ends_with: Literal["updates", "minutes"] = "updates"
    """When a schedule that has an end reaches it. updates: at `training.max_updates`; minutes: at
    `training.max_minutes`, if that comes first at the mean speed so far."""
    ends: ClassVar[bool] = False
    """Whether the schedule has an end, so that it depends on the number of the last update."""
    follows_scores: ClassVar[bool] = False
    """Whether the rate depends on evaluations, by the figure named in a field `metric`."""

    def length_problem(self, most: int) -> str | None:
        """The beginning of a message that names the field that is too long, up to `less than`; None if all fit."""
        if self.warmup_updates < most:
            return None
        return f"warmup_updates: {self.warmup_updates} leaves no updates to decay in; it must be less than"

    def rate(self, update: int, *, peak: float, last: int, scores: Sequence[float] = ()) -> float:
        """The learning rate of an update.

        Args:
            update: number of the update, counting from 1 and only updates that were applied.
            peak: the highest rate, reached at the end of the warm-up.
            last: number of the update at which a schedule that has an end reaches it.
            scores: of the evaluations since the schedule began, in order, signed so that the highest is best; given to
                a schedule that follows them.
        """
        if update <= self.warmup_updates:
            return peak * update / self.warmup_updates
        return peak * self.factor(update, last)

    def factor(self, update: int, last: int) -> float:
        """The learning rate after the warm-up, as a fraction of the peak; for the arguments see `rate`."""
        raise NotImplementedError

    def done(self, update: int, last: int) -> float:
        """The fraction of what comes after the warm-up that is done, from 0 to 1.

        Even without a warm-up, it is 0 at the first update, which has the peak rate.
        """
        begin = max(self.warmup_updates, 1)
        return min(max((update - begin) / max(last - begin, 1), 0.0), 1.0)


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


Samples = Sequence[tuple[str, str, str]]
"""Source, reference and translation of some pairs."""


class Writer(Protocol):
    """Writes a run's figures to a tracker. A writer that raises an error is dropped with a warning; training continues.

    Its methods are called one after the other in the writer's own thread. Training does not wait for them: if a writer
    falls too far behind, records are dropped with a warning.
    """

    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        """Write figures by their tags, such as `train/loss`, and an evaluation's sample translations."""
        ...

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write something that happened, such as a skipped update or a rewind, by its names in metrics.jsonl.

        The last is `end`, with the start's `outcome` (finished, stopped, failed or refused), `exit_code` and `reason`.
        """
        ...

    def close(self) -> None:
        """Flush and close; also called after another method has raised an error."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True)
class Tracker(Component):
    """A tracker of runs."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """Open a writer for a new or resumed run. Called in the writer's thread.

        Args:
            folder: the run's folder.
            config: the run's resolved configuration as plain mappings.
            resume_step: step of the checkpoint that the run resumes from, or 0; records of later steps are invalid.

        Raises:
            Exception: any error; training continues without the tracker.
        """
        raise NotImplementedError
