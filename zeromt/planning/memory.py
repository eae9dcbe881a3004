"""Memory of one rank: model states by ZeRO stage, activations, output and loss. Estimates.

The stages are those of ZeRO (Rajbhandari et al., 2020, section 5) as our engine runs them on DeepSpeed: gradients are
summed in fp32. A test holds the states against the tensors of real engines.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from configs import RunConfig
from configs.components.training import ALL_STAGES
from model.flops import BatchShape, Vocabularies, parameters
from model.trained import trained
from zeromt.planning.activations import ELEMENT, activations, gpu, output_bytes

FLOAT = 4
"""Bytes of an fp32 number."""
BUCKET_ELEMENTS, STAGE_3_BUCKET_ELEMENTS = 25_000_000, 50_000_000
"""Gradients that are reduced at a time at stages 1 and 2, and at stage 3."""
LIVE_ELEMENTS = 500_000_000
"""Weights that stage 3 leaves gathered between a forward and a backward pass, at most."""
WORKSPACE_BYTES = 32 << 20
"""Workspace of cuBLAS on Hopper GPUs; older ones need 8 MiB."""
RESERVED_BYTES = 1 << 30
"""Memory outside torch's allocator: the CUDA context and NCCL's buffers."""
USABLE_FRACTION = 0.95
"""Fraction of the rest that tensors can use; fragmentation takes the remainder."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Setting:
    """The choices that save memory: ZeRO stage, optimizer offload, activation checkpointing."""

    stage: int
    offload: bool
    checkpointing: bool

    def __str__(self) -> str:
        return f"ZeRO-{self.stage}{' + offload' * self.offload}{' + checkpointing' * self.checkpointing}"


@dataclass(kw_only=True, slots=True, frozen=True)
class States:
    """Bytes of the model states on one rank."""

    weights: int
    """In the training precision; at stage 3 with those that are gathered at the end of a forward pass."""
    gradients: int
    """In fp32, between the micro-batches of an update."""
    optimizer: int
    """fp32 weights and the optimizer's states."""
    buckets: int
    """Gradients on their way."""
    is_late: bool
    """Buckets are there only when the activations are gone."""
    host: int
    """In host memory: what is offloaded, and exact weights of what is frozen."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Memory:
    """Bytes of one rank."""

    states: States
    activations: int
    output: int
    """Output layer and loss."""
    copy: int
    """The copy of the model that evaluation decodes with; it stays on the device."""
    peak: int
    """Of all at once, or of the whole model in fp32 before the engine exists."""


class MemoryModel:
    """Computes a run's memory for any setting, size of micro-batches and number of ranks.

    Args:
        config: the run's configuration.
        vocabularies: sizes of the tokenizer's vocabularies.
        precision: fp32, bf16 or fp16.
    """

    def __init__(self, config: RunConfig, vocabularies: Vocabularies, *, precision: str) -> None:
        self.config, self.vocabularies, self.precision = config, vocabularies, precision
        self.parameters = parameters(config.model, vocabularies)
        self.num_parameters = sum(p.size for p in self.parameters)
        names = trained(config)
        ours = [p for p in self.parameters if p.name in names]
        self.num_trained = sum(p.size for p in ours)
        states_of = config.optimizer.states_of
        states = sum(math.prod(shape) for p in ours for shape in states_of(p.name, p.shape).values())
        average = self.num_trained if config.training.ema_decay else 0
        self.num_states = states + average
        """Numbers that the optimizer keeps besides the weights that it trains, and their moving average."""
        self._largest = max(p.size for p in ours)

    def stage(self, setting: Setting) -> int:
        """The stage that runs: in half precision 1 for 0."""
        asked: Any = setting.stage
        engine = dataclasses.replace(self.config.engine, zero_stage=asked)
        return engine.in_precision(self.precision, self.config.optimizer.stages).zero_stage

    def states(self, setting: Setting, world_size: int) -> States:
        """Memory of the model states, which does not depend on the micro-batches."""
        element, trained, frozen = ELEMENT[self.precision], self.num_trained, self.num_parameters - self.num_trained
        stage = self.stage(setting)
        is_half, parts = element < FLOAT, world_size if stage else 1
        weights = element * self.num_parameters
        if stage == 3 and world_size > 1:
            weights = weights // world_size + element * min(self.num_parameters, LIVE_ELEMENTS)
        masters = trained if stage or is_half else 0
        optimizer = FLOAT * (masters + self.num_states) // parts
        gradients = FLOAT * trained // (world_size if stage >= 2 else 1)
        sent = min(trained, max(self._largest, STAGE_3_BUCKET_ELEMENTS if stage == 3 else BUCKET_ELEMENTS))
        is_late = stage == 0 or (stage == 1 and is_half)
        if stage == 0:
            buckets = FLOAT * trained if world_size > 1 else 0
        elif is_late:  # a micro-batch's gradients, and a flat copy of some that is added to the sums
            buckets = element * (trained + sent)
        elif stage == 3:  # a buffer in which gradients are sent, and those that wait for it
            buckets = FLOAT * (STAGE_3_BUCKET_ELEMENTS + 2 * sent)
        else:  # gradients that wait, a copy side by side, and two buckets that are sent
            buckets = sent * (element * ((stage == 2) + is_half) + 2 * FLOAT)
        host = FLOAT * frozen // world_size if is_half else 0
        if setting.offload:
            host += optimizer + FLOAT * trained // world_size
            gradients = 0 if stage == 3 else gradients
            optimizer = 0
        return States(
            weights=weights, gradients=gradients, optimizer=optimizer, buckets=buckets, is_late=is_late, host=host
        )

    def memory(
        self, setting: Setting, *, world_size: int, source_tokens: int, target_tokens: int, num_rows: int | None = None
    ) -> Memory:
        """Memory with micro-batches of this many padded tokens.

        Args:
            setting: stage, offload, checkpointing.
            world_size: number of ranks.
            source_tokens, target_tokens: of a micro-batch.
            num_rows: of a micro-batch; the most that the stream may cut by default, which needs most.
        """
        states, stream = self.states(setting, world_size), self.config.stream
        model = dataclasses.replace(self.config.model, activation_checkpointing=setting.checkpointing)
        # a single row, because of fused attention's activations only the number of tokens matters
        shape = BatchShape(rows=1, source=source_tokens, target=target_tokens)
        short = min(source_tokens, target_tokens) // stream.length_multiple
        layers = activations(
            model,
            shape,
            gpu(self.precision),
            num_rows=num_rows or max(1, min(stream.max_rows, short)),
            attention=self.config.engine.attention,
        )
        output = output_bytes(model, self.config.loss, self.vocabularies, target_tokens, precision=self.precision)
        # with tied embeddings, the output matrix's gradient is kept until the embedding's is added to it
        matrix = self.vocabularies.target * model.d_model * ELEMENT[self.precision]
        batch = layers.total + max(output.total, layers.working + matrix)
        copy = ELEMENT[self.precision] * self.num_parameters if self.config.evaluation.every_updates else 0
        resident = states.weights + states.gradients + states.optimizer + copy + WORKSPACE_BYTES
        passing = max(batch, states.buckets) if states.is_late else batch + states.buckets
        return Memory(
            states=states,
            activations=layers.total,
            output=output.total,
            copy=copy,
            peak=max(resident + passing, FLOAT * self.num_parameters),
        )

    @property
    def checkpoint_bytes(self) -> int:
        """The size of a checkpoint: weights, the optimizer's states, and a moving average where one is kept."""
        of_frozen = (self.num_parameters - self.num_trained) * (self.config.training.ema_decay > 0)
        return FLOAT * (self.num_parameters + self.num_states + of_frozen)


def usable_memory(device_bytes: int) -> int:
    """The bytes of a device's memory that tensors can use."""
    return int((device_bytes - RESERVED_BYTES) * USABLE_FRACTION)


def settings(config: RunConfig) -> Iterator[Setting]:
    """All settings that a run allows, in order of their cost in time: offload costs most, then checkpointing."""
    for offload in (False, True):
        for checkpointing in (False, True):
            for stage in ALL_STAGES:
                engine = dataclasses.replace(config.engine, zero_stage=stage, offload_optimizer=offload)
                is_asked = offload >= config.engine.offload_optimizer
                is_asked &= checkpointing >= config.model.activation_checkpointing
                is_sound = config.optimizer.stage_problem(stage, offload=offload) is None
                if is_asked and is_sound and not any(engine.problems()):
                    yield Setting(stage=stage, offload=offload, checkpointing=checkpointing)
