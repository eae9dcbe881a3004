"""The configuration of a run, section by section.

A field's annotation gives its type and bounds; a section's `problems` checks what concerns several of its fields, and
`RunConfig.problems` what concerns several sections. The tree is immutable, and a component receives its own section,
never the whole tree.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from configs.components import Choice, Optimizer, Schedule, Tracker, make, unknown
from configs.components.model import Loss
from configs.components.modifier import dataset_problems
from configs.data import DatasetSource, PhaseSection, PrepareSection, StreamSection
from configs.evaluation import EarlyStoppingSection, EvaluationSection
from configs.fields import (
    MOST,
    STRICT,
    Count,
    Name,
    NonNegativeFloat,
    PathText,
    Positive,
    PositiveFloat,
    Probability,
)
from configs.model import ModelSection
from configs.plugins.record import Plugin
from configs.zero_keys import needs_quantizer, value_of, zero_problems


@dataclass(kw_only=True, slots=True, frozen=True)
class EngineSection:
    """How DeepSpeed holds the model: ZeRO stage (Rajbhandari et al., 2020), precision, offload."""

    __pydantic_config__ = STRICT

    zero_stage: Literal[0, 1, 2, 3] = 1
    """What is sharded over the ranks: 0 nothing; 1 the optimizer's state; 2 also gradients; 3 also weights."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """auto: bf16 if every rank's device is faster in it than in fp32, else fp32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the GPUs where the machine has some, the CPU elsewhere; GPUs that torch cannot use are an error."""
    offload_optimizer: bool = False
    """Keep fp32 master weights and moments in host memory (stages 1 to 3)."""
    zero_optimization: dict[str, Any] = field(default_factory=dict)
    """Other keys of DeepSpeed's `zero_optimization`, passed on unchanged."""
    compile: bool = False
    """torch.compile of each layer while training (stages 0 to 2): takes minutes, and a compiler (CPU: C++, GPU: C)."""
    kernels: Literal["auto", "plain", "cuda"] = "auto"
    """What the model computes by: auto, the kernels of its device, on GPUs if they pass a check; plain, PyTorch alone;
    cuda, those for GPUs, of which a CPU takes the plain implementations (slow, for tests)."""
    merge_lanes: Literal["auto"] | Positive = "auto"
    """Micro-batches of a rank that go through the model as one, where kernels leave out padding; the update stays the
    same. auto: as many as fit the memory; never with several datasets, whose losses are told apart."""
    fp16_initial_scale_power: Annotated[int, Field(ge=0, le=32)] = 16
    """In fp16, the initial loss scale is 2 to this power."""
    communication_timeout_minutes: PositiveFloat = 30.0
    """A collective that takes longer is an error, in every group of ranks."""
    numa_binding: Literal["auto", "off", "node", "socket", "exclusive", "core-complex"] = "auto"
    """torchrun's `--numa-binding`: ranks run on cores beside their GPU. auto: node, where the machine has GPUs, several
    nodes of memory and numactl."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.offload_optimizer and self.zero_stage == 0:
            yield "offload_optimizer: true at zero_stage=0; allowed at stages 1 to 3"
        if self.compile and self.zero_stage == 3:
            yield "compile: true at zero_stage=3, whose hooks cut every layer in pieces; allowed at stages 0 to 2"
        yield from zero_problems(self.zero_optimization, self.zero_stage, offload=self.offload_optimizer)
        if self.device == "cpu" and (key := needs_quantizer(self.zero_optimization)) is not None:
            yield f"zero_optimization.{key}: true with device=cpu; allowed on GPUs, which DeepSpeed has a kernel for"


@dataclass(kw_only=True, slots=True, frozen=True)
class TrainingSection:
    """How long to train, and what to log. The first limit that is reached ends the run."""

    __pydantic_config__ = STRICT

    max_updates: Positive = 100_000
    """Optimizer updates after which the run ends."""
    max_epochs: Positive | None = None
    """Passes over the data after which the run ends."""
    max_minutes: PositiveFloat | None = None
    """Wall time of training over all restarts, evaluation and saving included."""
    early_stopping: EarlyStoppingSection | None = None
    log_every: Positive = 50
    """Updates between log lines."""
    peak_tflops: PositiveFloat | None = None
    """Peak of one device in the run's precision, 10^12 FLOP/s, that `mfu` is a fraction of. Known of many GPUs; on
    others, and on CPUs, there is no `mfu` unless it is given."""
    record_pairs: bool = False
    """Write the identifiers of every update's pairs to pairs/ in the run's folder."""
    max_skipped_in_a_row: Positive = 20
    """The run stops after this many updates in a row with a non-finite gradient."""
    tensorboard: bool = True
    """Write event files to tensorboard/ in the run's folder."""
    deterministic: bool = False
    """torch.use_deterministic_algorithms, for bitwise equal updates; slower on GPUs, and there without a sampler."""
    memory_probe: bool = True
    """Try a forward and backward pass on the largest shapes before update 1, and discard the result."""
    ema_decay: Probability = 0.0
    """Decay of a moving average of the weights, which is then evaluated and exported; 0 keeps no average."""
    fit_memory: bool = False
    """Let a new run take the largest token budgets of `stream` that leave 5 % of the device free, up to those given."""


@dataclass(kw_only=True, slots=True, frozen=True)
class StabilitySection:
    """Loss spikes and replicas that differ."""

    __pydantic_config__ = STRICT

    spike_score: NonNegativeFloat = 12.0
    """A loss this many robust deviations (median and MAD) above the median is a spike; 0 turns this off."""
    spike_window: Annotated[int, Field(ge=16, le=65_536)] = 128
    """Number of updates over which median and deviation are taken."""
    skip_updates: Positive = 8
    """After a rewind to the checkpoint, this many updates up to the spike are skipped."""
    max_rewinds: Count = 3
    """A run rewinds this often; after that it stops instead."""
    hash_every_updates: Count = 1000
    """Compare the hashes of the weights' replicas; 0 turns this off. At stage 3 there are no replicas."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SupervisionSection:
    """Time limits of what a rank does; a rank that exceeds one is killed and its stacks are printed."""

    __pydantic_config__ = STRICT

    setup_minutes: PositiveFloat = 60.0
    """From the start of a rank to its first update."""
    step_minutes: PositiveFloat = 30.0
    """Of one update, waiting for its data included."""
    save_minutes: PositiveFloat = 60.0
    """Of one save."""
    evaluation_minutes: PositiveFloat = 240.0
    """Of one evaluation, with all its sets."""


@dataclass(kw_only=True, slots=True, frozen=True)
class CheckpointSection:
    """When to save, and what to keep."""

    __pydantic_config__ = STRICT

    every_updates: Count = 1000
    """Updates between saves; 0 saves only at the end."""
    keep_last: Annotated[int, Field(ge=2, le=MOST)] = 3
    """Keep this many of the newest."""
    keep_best: Count = 1
    """Besides the newest, keep this many with the best validation score."""
    best_by: str | None = None
    """Decides which is best: the name of one of `evaluation.metrics` or `evaluation.queued`, loss or nll;
    by default the first of the metrics."""
    keep_every: Count = 0
    """Besides those, keep every checkpoint whose step is a multiple of this; 0 keeps none."""
    asynchronous: bool = True
    """Copy the shards to host memory, if there is enough, and write them while training goes on."""
    max_failures: Positive = 3
    """The run stops after this many failed saves in a row."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunConfig:
    """A whole run."""

    __pydantic_config__ = STRICT

    name: Name = "run"
    """Name of the run, and of its folder in `output`."""
    output: PathText = "runs"
    """Folder of runs; this run is in OUTPUT/NAME."""
    seed: Count = 1
    """Seed of initial weights, dropout and the order of the data."""
    prepare: PrepareSection = field(default_factory=PrepareSection)
    stream: StreamSection = field(default_factory=StreamSection)
    model: ModelSection = field(default_factory=ModelSection)
    loss: Annotated[Loss, Choice("loss", "cross_entropy")] = field(
        default_factory=lambda: make("loss", "cross_entropy")
    )
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
    """Parts of the run with data of their own, one after the other: see docs/phases.md."""
    engine: EngineSection = field(default_factory=EngineSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    stability: StabilitySection = field(default_factory=StabilitySection)
    supervision: SupervisionSection = field(default_factory=SupervisionSection)
    trackers: list[Annotated[Tracker, Choice("tracker", "tensorboard")]] = field(default_factory=list)
    """Trackers in addition to TensorBoard (`training.tensorboard`): components of trainer/trackers, or plugins."""
    plugins: list[Plugin] = field(default_factory=list)
    """In a file: paths of Python files with components, relative to it; here they are run and known by their SHA-256.
    Installed packages that components come from stand behind them."""

    def problems(self) -> Iterator[str]:
        """What is wrong between the sections, one line each."""
        if self.prepare.tokenizer.vocabulary == "separate" and self.model.tied_embeddings == "three-way":
            yield (
                "model.tied_embeddings: three-way with prepare.tokenizer.vocabulary=separate; "
                "allowed is decoder or none, or a joint vocabulary"
            )
        if self.schedule.ends and self.schedule.warmup_updates >= self.training.max_updates:
            yield (
                f"schedule.warmup_updates: {self.schedule.warmup_updates} leaves nothing of "
                f"training.max_updates={self.training.max_updates} to decay in; allowed is less than that"
            )
        if value_of(self.engine.zero_optimization, "compute_grad_norm") is False and self.optimizer.clip_norm:
            yield (
                f"engine.zero_optimization.compute_grad_norm: false with optimizer.clip_norm={self.optimizer.clip_norm}"
                ", which is of that norm; allowed is optimizer.clip_norm=0"
            )
        if self.engine.merge_lanes not in ("auto", 1) and len(self.datasets) > 1:
            yield (
                f"engine.merge_lanes: {self.engine.merge_lanes} with {len(self.datasets)} datasets, whose losses are "
                "told apart; allowed is auto or 1"
            )
        yield from self._figure_problems()
        most = min(self.supervision.setup_minutes, self.engine.communication_timeout_minutes)
        if self.evaluation.queued and self.evaluation.queued_end_minutes >= most:
            yield (
                f"evaluation.queued_end_minutes: {self.evaluation.queued_end_minutes:g} is more than other ranks wait; "
                f"allowed is less than {most:g}, of supervision.setup_minutes and engine.communication_timeout_minutes"
            )
        if self.schedule.ends_with == "minutes" and self.training.max_minutes is None:
            yield "schedule.ends_with: minutes without training.max_minutes; set both, or ends_with: updates"
        if self.schedule.ends_with == "minutes" and not self.schedule.ends:
            yield f"schedule.ends_with: minutes with kind={self.schedule.kind}, which does not end; allowed is updates"
        yield from self._phase_problems()
        paths = list(dict.fromkeys(source.path for stream in self.streams for source in stream.datasets))
        named = "the datasets of any phase" if self.phases else "stream.datasets"
        yield from (f"stream.{problem}" for problem in dataset_problems(self.stream.augment, paths, named))
        if not self.reads_prepared:  # but data of other configurations: the reader looks at their pairs
            return
        longest = min(self.stream.source_tokens, self.stream.target_tokens)
        if self.stream.on_oversized_pair == "error" and self.prepare.max_pieces + 1 > longest:
            yield (
                f"prepare.max_pieces: {self.prepare.max_pieces} pieces and EOS can never fit: "
                f"{self.prepare.max_pieces} + 1 > {longest} of stream.source_tokens or stream.target_tokens; "
                f"allowed is at most {longest - 1}, or stream.on_oversized_pair=drop"
            )
        if self.prepare.max_pieces + 1 > self.model.max_positions:
            yield (
                f"model.max_positions: {self.model.max_positions} is less than prepare.max_pieces + 1 = "
                f"{self.prepare.max_pieces + 1}; allowed is at least that"
            )

    def _figure_problems(self) -> Iterator[str]:
        stopping = self.training.early_stopping
        figures = self.evaluation.directions
        named = {
            "checkpoint.best_by": self.checkpoint.best_by,
            "training.early_stopping.metric": None if stopping is None else stopping.metric,
        }
        for key, figure in named.items():
            if figure is not None and figure not in figures:
                yield f"{key}: {unknown(figure, figures, what='figure of the evaluation')}"
        by = stopping and (stopping.metric or self.best_by)
        if by and by in figures and by not in self.evaluation.at_once:
            yield (
                f"training.early_stopping.metric: the score {by} comes late (evaluation.queued); allowed is "
                f"{' or '.join(self.evaluation.at_once)}"
            )
        if stopping is not None and not self.evaluation.every_updates:
            yield "training.early_stopping: with evaluation.every_updates=0; set every_updates above 0"

    def _phase_problems(self) -> Iterator[str]:
        names = [phase.name for phase in self.phases]
        for number, (phase, stream) in enumerate(zip(self.phases, self.streams, strict=False)):
            where, is_last = f"phases.{number}", number == len(names) - 1
            if phase.name in names[:number]:
                yield f"{where}.name: {phase.name} is the name of another; give it one of its own"
            if phase.until is None and not is_last:
                yield f"{where}.until: missing, and {names[number + 1]} follows; say when {phase.name} is over"
            named = "stream.datasets" if phase.datasets is None else f"{where}.datasets"
            problems = sorted(set(stream.problems()) - set(self.stream.problems()))
            paths = [source.path for source in stream.datasets]
            for problem in (*problems, *dataset_problems(phase.augment or (), paths, named)):
                yield f"{where}.{problem}"
            updates = None if phase.until is None else phase.until.updates
            if phase.until is not None and phase.until.plateau is not None:
                figure = phase.until.plateau.metric or self.best_by
                if figure not in self.evaluation.at_once:
                    known_ = ", ".join(self.evaluation.at_once)
                    yield f"{where}.until.plateau.metric: {figure}; allowed is a figure that evaluations have: {known_}"
                if not self.evaluation.every_updates:
                    yield f"{where}.until.plateau: with evaluation.every_updates=0; set every_updates above 0"
            if phase.schedule is None:
                continue
            if phase.schedule.ends_with == "minutes":
                yield f"{where}.schedule.ends_with: minutes; allowed in a phase is updates"
            if phase.schedule.ends and updates is None and not is_last:
                yield f"{where}.schedule: {phase.schedule.kind} ends with the phase; set {where}.until.updates"
            elif phase.schedule.ends and phase.schedule.warmup_updates >= (updates or self.training.max_updates):
                yield (
                    f"{where}.schedule.warmup_updates: {phase.schedule.warmup_updates} leaves nothing of the phase to "
                    f"decay in; allowed is less than {updates or self.training.max_updates}"
                )

    @property
    def best_by(self) -> str:
        """The figure that decides which step is best."""
        return self.checkpoint.best_by or self.evaluation.metrics[0].key()

    @property
    def folder(self) -> str:
        """The run's folder."""
        return f"{self.output}/{self.name}"

    @property
    def streams(self) -> list[StreamSection]:
        """What each phase reads; the section `stream` alone in a run without phases."""
        return [phase.stream(self.stream) for phase in self.phases] or [self.stream]

    @property
    def reads_prepared(self) -> bool:
        """Whether `prepare.output` is read, since no other datasets are named."""
        return not all(stream.datasets for stream in self.streams)

    @property
    def named_datasets(self) -> dict[str, tuple[str, DatasetSource]]:
        """The prepared datasets that training reads, by path, each with the field that names it first."""
        found: dict[str, tuple[str, DatasetSource]] = {}
        for number, stream in enumerate(self.streams):
            is_own = bool(self.phases) and self.phases[number].datasets is not None
            field_ = f"phases.{number}.datasets" if is_own else "stream.datasets"
            for source in stream.datasets:
                found.setdefault(source.path, (field_, source))
            if not stream.datasets:
                found.setdefault(self.prepare.output, ("prepare.output", DatasetSource(path=self.prepare.output)))
        return found

    @property
    def datasets(self) -> list[DatasetSource]:
        """The prepared datasets that training reads, those of all phases, each once."""
        return [source for _, source in self.named_datasets.values()]
