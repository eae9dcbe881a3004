"""The configuration of a run, section by section.

The annotation of a field gives its type and bounds. A section's `problems` checks rules between its fields, and
`RunConfig.problems` rules between sections. The tree is immutable. A component receives only its own section.
"""

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from configs.components import Choice, Optimizer, Schedule, Tracker, make, unknown
from configs.data import DatasetSource, PhaseSection, PrepareSection, StreamSection
from configs.evaluation import EarlyStoppingSection, EvaluationSection
from configs.fields import (
    MAX_INTEGER,
    STRICT,
    Count,
    Name,
    NonNegativeFloat,
    PathText,
    Pattern,
    Positive,
    PositiveFloat,
    Probability,
)
from configs.model import ModelSection
from configs.plugins import Plugin

_OF_REDUCTION = frozenset(
    {
        "compute_grad_norm", "overlap_comm", "reduce_scatter", "contiguous_gradients",
        "use_multi_rank_bucket_allreduce", "parameter_alignment",
    }
)  # fmt: skip
"""Keys of `zero_optimization` about how DeepSpeed itself reduces gradients at stages 1 and 2."""


@dataclass(kw_only=True, slots=True, frozen=True)
class EngineSection:
    """How DeepSpeed holds the model: ZeRO stage (Rajbhandari et al., 2020), precision, offload."""

    __pydantic_config__ = STRICT

    zero_stage: Literal[0, 1, 2, 3] = 1
    """What is sharded over the ranks: 0 nothing; 1 the optimizer's state; 2 also gradients; 3 also weights."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 if every rank's device computes faster in bf16 than in fp32, else fp32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: GPUs if the machine has any, else the CPU. GPUs that torch cannot use are an error."""
    offload_optimizer: bool = False
    """Keep fp32 master weights and moments in host memory (stages 1 to 3)."""
    zero_optimization: dict[str, Any] = field(default_factory=dict)
    """Other keys of DeepSpeed's `zero_optimization`, checked at `train --check`, `launch --dry-run` and every start."""
    plain_deepspeed: bool = False
    """Apply none of the changes to DeepSpeed: slower at stages 1 and 2; what to compare with, or to fall back on. On
    CPUs it then compiles an operator, which takes minutes and a C++ compiler."""
    kernels: Literal["auto", "plain", "cuda"] = "auto"
    """Kernels of the model. auto: those for its device, on GPUs only if they pass a check; plain: only PyTorch's; cuda:
    those for GPUs, for which a CPU uses slow reference implementations (for tests)."""
    attention: Literal["auto", "padded", "flash", "efficient"] = "auto"
    """How rows attend, by the kernels for GPUs. padded: PyTorch's way; the others leave padding out. flash: flash
    attention; efficient: xFormers' kernels. auto: by the lengths of the data's rows, of what all ranks can; a run keeps
    it."""
    merge_lanes: Literal["auto"] | Positive = "auto"
    """How many of a rank's micro-batches are computed as one, by kernels that skip padding; the update stays the same.
    auto: as many as fit into memory; 1 with several datasets, whose losses are logged separately."""
    fp16_initial_scale_power: Annotated[int, Field(ge=0, le=32)] = 16
    """In fp16, the initial loss scale is 2 to this power."""
    communication_timeout_minutes: PositiveFloat = 20.0
    """A collective that takes longer than this is an error; keep it above supervision.step_minutes."""
    numa_binding: Literal["auto", "off", "node", "socket", "exclusive", "core-complex"] = "auto"
    """torchrun's `--numa-binding`: ranks run on cores close to their GPU. auto: node if the machine has GPUs, several
    NUMA nodes and numactl, else off."""

    @property
    def reduces_in_buckets(self) -> bool:
        """Whether gradients are summed in the backward pass: at stages 1 and 2, unless that is left to DeepSpeed."""
        given = {key for key, value in self.zero_optimization.items() if value not in (None, "auto")}
        return self.zero_stage in (1, 2) and not self.plain_deepspeed and given.isdisjoint(_OF_REDUCTION)

    def in_precision(self, precision: str, stages: Collection[int]) -> Self:
        """The section that runs: in half precision, DeepSpeed's stage 0 adds gradients up in it; stage 1 does not.

        Args:
            precision: of the model.
            stages: at which the optimizer is sound.
        """
        runs_as_1 = self.zero_stage == 0 and precision != "fp32" and 1 in stages
        return dataclasses.replace(self, zero_stage=1) if runs_as_1 else self

    def problems(self) -> Iterator[str]:
        """Errors that concern several fields, one line each."""
        if self.offload_optimizer and self.zero_stage == 0:
            yield "offload_optimizer: true at zero_stage=0; allowed at stages 1 to 3"


@dataclass(kw_only=True, slots=True, frozen=True)
class TrainingSection:
    """How long to train, and what to log. The run ends at the first limit that it reaches."""

    __pydantic_config__ = STRICT

    max_updates: Positive = 100_000
    """Optimizer updates after which the run ends."""
    max_target_tokens: Positive | None = None
    """Target tokens after which the run ends, EOS included and padding not."""
    max_epochs: Positive | None = None
    """Passes over the data after which the run ends."""
    max_minutes: PositiveFloat | None = None
    """Minutes of training after which the run ends, summed over all restarts, including evaluations and saves."""
    early_stopping: EarlyStoppingSection | None = None
    log_every: Positive = 50
    """Updates between log lines."""
    peak_tflops: PositiveFloat | None = None
    """Peak of one device in the run's precision, in 10^12 FLOP/s, for the figure `mfu`. By default the data sheet's for
    many GPUs; for others, and for CPUs, there is no `mfu`."""
    max_skipped_in_a_row: Positive = 20
    """The run stops after this many updates in a row with a non-finite gradient."""
    tensorboard: bool = True
    """Write a TensorBoard event file to the run's folder."""
    deterministic: bool = False
    """Use torch.use_deterministic_algorithms, for bitwise equal updates. On GPUs it is slower and excludes samplers."""
    ema_decay: Probability = 0.0
    """Decay of a moving average of the weights, which is evaluated and exported in their place; 0: no average."""
    freeze: list[Pattern] = field(default_factory=list)
    """Names of parameters, with the wildcards of a shell, that stay as they are: encoder.* or source_embedding."""
    fit_memory: bool = False
    """In a new run, if the token budgets of `stream` do not leave 5 % of device memory free, use smaller ones, in steps
    of a tenth."""


@dataclass(kw_only=True, slots=True, frozen=True)
class StabilitySection:
    """What to do about loss spikes."""

    __pydantic_config__ = STRICT

    spike_score: NonNegativeFloat = 12.0
    """A loss is a spike if it is this many robust deviations (MAD) above the median; 0 turns detection off."""
    spike_window: Annotated[int, Field(ge=16, le=65_536)] = 128
    """Number of updates from which median and deviation are computed."""
    skip_updates: Positive = 8
    """After a spike, the run rewinds to the newest checkpoint and skips this many updates up to the spike."""
    max_rewinds: Count = 3
    """Number of rewinds after which the next spike stops the run."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SupervisionSection:
    """Time limits for a rank's activities; a rank that exceeds one writes its stacks and ends."""

    __pydantic_config__ = STRICT

    step_minutes: PositiveFloat = 8.0
    """Time limit of one update, and of the wait for its data; the first update of a start, which compiles, has two
    minutes less than engine.communication_timeout_minutes."""
    save_minutes: PositiveFloat = 60.0
    """Time limit of one save, and of the beginning and the end of a start."""
    evaluation_minutes: PositiveFloat = 240.0
    """Time limit of one evaluation of all its sets."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CheckpointSection:
    """When to save checkpoints, and which to keep."""

    __pydantic_config__ = STRICT

    every_updates: Count = 1000
    """Updates between saves; 0 saves only at the end."""
    keep_last: Annotated[int, Field(ge=2, le=MAX_INTEGER)] = 3
    """Number of newest checkpoints to keep."""
    keep_best: Count = 1
    """Number of checkpoints with the best validation scores to keep, besides the newest."""
    best_by: str | None = None
    """The figure that decides which is best: the name of one of `evaluation.metrics` or `evaluation.queued`, or loss or
    nll; by default the first of the metrics."""
    keep_every: Count = 0
    """Also keep every checkpoint whose step is a multiple of this; 0 keeps no further ones."""
    asynchronous: bool = True
    """Copy shards to host memory, if there is enough, and write them in the background while training continues."""
    max_failures: Positive = 3
    """The run stops after this many failed saves in a row."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunConfig:
    """The configuration of a run."""

    __pydantic_config__ = STRICT

    name: Name = "run"
    """Name of the run, and of its folder in `output`."""
    output: PathText = "runs"
    """Folder that contains runs; this run's own folder is OUTPUT/NAME."""
    seed: Count = 1
    """Seed of the initial weights, of dropout and of the order of the data."""
    prepare: PrepareSection = field(default_factory=PrepareSection)
    stream: StreamSection = field(default_factory=StreamSection)
    model: ModelSection = field(default_factory=ModelSection)
    loss: Annotated[Any, Choice("loss", "cross_entropy")] = field(default_factory=lambda: make("loss", "cross_entropy"))
    """The training loss: a component of model/components."""
    optimizer: Annotated[Optimizer, Choice("optimizer", "adamw")] = field(
        default_factory=lambda: make("optimizer", "adamw")
    )
    """A component of trainer/optimizers."""
    schedule: Annotated[Schedule, Choice("schedule", "inverse_sqrt")] = field(
        default_factory=lambda: make("schedule", "inverse_sqrt")
    )
    """The learning rate as a function of applied updates: a component of trainer/schedules."""
    phases: list[PhaseSection] = field(default_factory=list)
    """Successive parts of the run, each with its own data: see docs/training.md."""
    engine: EngineSection = field(default_factory=EngineSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    stability: StabilitySection = field(default_factory=StabilitySection)
    supervision: SupervisionSection = field(default_factory=SupervisionSection)
    trackers: list[Annotated[Tracker, Choice("tracker", "tensorboard")]] = field(default_factory=list)
    """Trackers in addition to TensorBoard (`training.tensorboard`): components of trainer/trackers, or plugins."""
    plugins: list[Plugin] = field(default_factory=list)
    """Paths of Python files with components, relative to the configuration file. The saved configuration of a run has
    their SHA-256."""

    def problems(self) -> Iterator[str]:
        """Errors that concern several sections, one line each."""
        schedule, most = self.schedule, self.training.max_updates
        if schedule.ends and (problem := schedule.length_problem(most)) is not None:
            yield f"schedule.{problem} training.max_updates={most}"
        if schedule.ends_with == "minutes" and not (schedule.ends and self.training.max_minutes):
            yield (
                "schedule.ends_with: minutes; it needs training.max_minutes, and a schedule that has an end, such as "
                "linear; set these, or ends_with: updates"
            )
        stage, offload = self.engine.zero_stage, self.engine.offload_optimizer
        if (unsound := self.optimizer.stage_problem(stage, offload=offload)) is not None:
            yield f"optimizer.kind: {unsound}"
        if self.engine.merge_lanes not in ("auto", 1) and len(self.datasets) > 1:
            yield (
                f"engine.merge_lanes: {self.engine.merge_lanes} with {len(self.datasets)} datasets, whose losses are "
                "logged separately; set it to auto or 1"
            )
        yield from self._figure_problems()
        longest = self.supervision.save_minutes
        if self.evaluation.queued and self.evaluation.queued_end_minutes >= longest:
            yield (
                f"evaluation.queued_end_minutes: {self.evaluation.queued_end_minutes:g} is longer than other ranks "
                f"wait; it must be less than supervision.save_minutes={longest:g}"
            )
        yield from self._phase_problems()
        yield from self._modifier_problems()

    def _figure_problems(self) -> Iterator[str]:
        """Figures of evaluations that are named, and are none; evaluations that are needed, and never come."""
        if self.checkpoint.best_by is not None and self.best_by not in self.evaluation.directions:
            said = unknown(self.best_by, self.evaluation.directions, what="figure of the evaluation")
            yield f"checkpoint.best_by: {said}"
            return
        needed: dict[str, str] = {}
        if (stopping := self.training.early_stopping) is not None:
            needed["training.early_stopping"] = stopping.metric or self.best_by
        if self.schedule.follows_scores:
            needed["schedule"] = self.followed_by(self.schedule)
        for number, phase in enumerate(self.phases):
            if phase.schedule is not None and phase.schedule.follows_scores:
                needed[f"phases.{number}.schedule"] = self.followed_by(phase.schedule)
            if phase.until is not None and (plateau := phase.until.plateau) is not None:
                needed[f"phases.{number}.until.plateau"] = plateau.metric or self.best_by
        for where, figure in needed.items():
            if figure not in self.evaluation.at_once:
                known = ", ".join(self.evaluation.at_once)
                yield f"{where}.metric: {figure} is not a figure of evaluations; use one of {known}"
            if not self.evaluation.every_updates:
                yield f"{where}: with evaluation.every_updates=0; set every_updates above 0"

    def _phase_problems(self) -> Iterator[str]:
        names = [phase.name for phase in self.phases]
        for number, (phase, stream) in enumerate(zip(self.phases, self.streams, strict=False)):
            where, is_last = f"phases.{number}", number == len(names) - 1
            if phase.name in names[:number]:
                yield f"{where}.name: {phase.name} is the name of another phase, too; give it one of its own"
            if phase.until is None and not is_last:
                yield f"{where}.until: missing, but {names[number + 1]} follows; say when {phase.name} ends"
            yield from (f"{where}.{problem}" for problem in sorted({*stream.problems()} - {*self.stream.problems()}))
            updates = None if phase.until is None else phase.until.updates
            if phase.schedule is None:
                continue
            if phase.schedule.ends_with != "updates":
                yield f"{where}.schedule.ends_with: {phase.schedule.ends_with}; in a phase it must be updates"
            if phase.schedule.ends and updates is None and not is_last:
                yield f"{where}.schedule: {phase.schedule.kind} ends with the phase; set {where}.until.updates"
            elif phase.schedule.ends:
                most = updates or self.training.max_updates
                if (wrong := phase.schedule.length_problem(most)) is not None:
                    yield f"{where}.schedule.{wrong} the phase's {most}"

    def _modifier_problems(self) -> Iterator[str]:
        """Datasets that modifiers name, and that the run does not read."""
        named = {source.path for stream in self.streams for source in stream.datasets}
        lists = {f"phases.{number}": phase.augment or [] for number, phase in enumerate(self.phases)}
        for where, modifiers in {"stream": self.stream.augment, **lists}.items():
            for number, modifier in enumerate(modifiers):
                for path in sorted(set(modifier.datasets) - named):
                    yield f"{where}.augment.{number}.datasets: {path} is none that the run names; name one"

    def followed_by(self, schedule: Schedule) -> str:
        """The figure of evaluations that a schedule follows."""
        return getattr(schedule, "metric", None) or self.best_by

    @property
    def best_by(self) -> str:
        """The figure that decides which checkpoint is best."""
        return self.checkpoint.best_by or self.evaluation.metrics[0].key()

    @property
    def folder(self) -> str:
        """The run's folder."""
        return f"{self.output}/{self.name}"

    @property
    def streams(self) -> list[StreamSection]:
        """The section `stream` of each phase; in a run without phases, only the run's own."""
        return [phase.stream(self.stream) for phase in self.phases] or [self.stream]

    @property
    def weighs_pairs(self) -> bool:
        """Whether the pairs of any dataset have weights in the loss."""
        return any(source.loss_weight is not None for stream in self.streams for source in stream.datasets)

    @property
    def reads_prepared(self) -> bool:
        """Whether `prepare.output` is read, because `stream` or a phase names no datasets."""
        return not all(stream.datasets for stream in self.streams)

    @property
    def named_datasets(self) -> dict[str, tuple[str, DatasetSource]]:
        """The prepared datasets that training reads, by path, each with the first field that names it."""
        datasets: dict[str, tuple[str, DatasetSource]] = {}
        for number, stream in enumerate(self.streams):
            is_own = bool(self.phases) and self.phases[number].datasets is not None
            field_ = f"phases.{number}.datasets" if is_own else "stream.datasets"
            for source in stream.datasets:
                datasets.setdefault(source.path, (field_, source))
            if not stream.datasets:
                datasets.setdefault(self.prepare.output, ("prepare.output", DatasetSource(path=self.prepare.output)))
        return datasets

    @property
    def datasets(self) -> list[DatasetSource]:
        """The prepared datasets that training reads in any phase, each once."""
        return [source for _, source in self.named_datasets.values()]
