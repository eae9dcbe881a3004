"""Peak device memory of one rank: model states and activations, at the moment when they need most."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from configs import EngineSection, ModelSection, Optimizer, RunConfig
from configs.components.training import ALL_STAGES
from configs.process.gpus import page_locked_bytes
from model.flops import BatchShape
from model.parameters import Parameter, Vocabularies, parameters, search_bytes
from model.trained import most_trained
from zeromt.planning.costs.activations import activations, output_bytes
from zeromt.planning.costs.model_states import (
    ELEMENT,
    FLOAT,
    Layout,
    ModelStates,
    model_states,
    num_moments,
)

WORKSPACE_BYTES = 32 << 20
"""Workspace of cuBLAS on Hopper GPUs; older ones need 8 MiB."""
RESERVED_BYTES = 1 << 30
"""Memory outside torch's allocator: the CUDA context and NCCL's buffers."""
USABLE_FRACTION = 0.95
"""Fraction of the rest that tensors can use; fragmentation takes the remainder."""

Stage = Literal[0, 1, 2, 3]


@dataclass(kw_only=True, slots=True, frozen=True)
class Setting:
    """The choices that save memory: ZeRO stage, optimizer offload, activation checkpointing."""

    stage: Stage
    offload: bool
    checkpointing: bool

    def __str__(self) -> str:
        extras = ["offload"] * self.offload + ["checkpointing"] * self.checkpointing
        return " + ".join([f"ZeRO-{self.stage}", *extras])


@dataclass(kw_only=True, slots=True, frozen=True)
class Memory:
    """Device memory of one rank in bytes: its parts, and the peak."""

    setting: Setting
    weights: int
    gradients: int
    optimizer: int
    activations: int
    output: int
    buckets: int
    copy: int
    """The copy of the model that evaluation decodes with; it stays on the device after the first evaluation."""
    step: int
    """Temporary memory of the optimizer's step, which comes after activations are freed."""
    moments: Mapping[str, int]
    """Total memory at five moments: the start of the `backward` pass, the `reduction` of gradients, the optimizer's
    `step`, an `evaluation`, and the `start` of the run before the engine exists."""
    peak: int
    """The largest of these."""
    moment: str
    """The moment of the peak."""
    host: int
    """Host memory: what is offloaded, and the copy that saves are written from."""


class MemoryModel:
    """Computes a run's memory for any setting, size of micro-batches and number of ranks.

    Args:
        config: the run's configuration.
        vocabularies: sizes of the tokenizer's vocabularies.
        precision: fp32, bf16 or fp16.
    """

    def __init__(self, config: RunConfig, vocabularies: Vocabularies, *, precision: str) -> None:
        self.config, self.vocabularies, self.precision = config, vocabularies, precision
        self.parameters: Sequence[Parameter] = parameters(config.model, vocabularies)
        self.num_parameters = sum(p.size for p in self.parameters)
        trained = most_trained(config, self.parameters)
        self.frozen = frozenset(p.name for p in self.parameters if p.name not in trained)
        self.num_trained = sum(p.size for p in self.parameters if p.name in trained)
        self.num_moments = num_moments(config, [p for p in self.parameters if p.name in trained])
        # caches: bisections ask for these again and again; they do not depend on checkpointing
        self._states: dict[tuple[int, bool, int], ModelStates] = {}
        self._layouts: dict[tuple[int, bool, int], Layout] = {}

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
        states, model = self.states(setting, world_size), self.section(setting)
        # a single row, because of fused attention's activations only the number of tokens matters
        shape = BatchShape(rows=1, source=source_tokens, target=target_tokens)
        num_rows = num_rows or self.most_rows(source_tokens, target_tokens)
        attention = self.config.engine.attention
        layers = activations(model, shape, precision=self.precision, num_rows=num_rows, attention=attention)
        output = output_bytes(model, self.config.loss, self.vocabularies, target_tokens, precision=self.precision)
        # with tied embeddings, the output matrix's gradient is kept until the embedding's is added to it
        matrix = self.vocabularies.target * model.d_model * ELEMENT[self.precision]
        batch = layers.total + max(output.total, layers.working + matrix)
        copy = ELEMENT[self.precision] * self.num_parameters
        resident = copy if self.config.evaluation.every_updates else 0
        training = states.total + states.live_weights + WORKSPACE_BYTES + resident
        moments = {
            "backward": training + batch + states.buckets_in_backward,
            "reduction": training + states.buckets,
            "step": training + states.step,
            "evaluation": states.total + WORKSPACE_BYTES + copy + self._search_bytes(),
            "start": states.start,
        }
        moment = max(moments, key=lambda name: moments[name])
        return Memory(
            setting=setting,
            weights=states.weights + states.live_weights,
            gradients=states.gradients,
            optimizer=states.optimizer,
            activations=layers.total,
            output=output.total,
            buckets=max(states.buckets, states.buckets_in_backward),
            copy=resident,
            step=states.step,
            moments=moments,
            peak=moments[moment],
            moment=moment,
            host=states.host + self._save_bytes(world_size),
        )

    def states(self, setting: Setting, world_size: int) -> ModelStates:
        """Memory of the model states, which does not depend on the micro-batches."""
        key = setting.stage, setting.offload, world_size
        if key not in self._states:
            self._states[key] = model_states(self.layout(setting, world_size))
        return self._states[key]

    def layout(self, setting: Setting, world_size: int) -> Layout:
        """How the model's elements are distributed over the ranks."""
        key = setting.stage, setting.offload, world_size
        if key not in self._layouts:
            self._layouts[key] = Layout(
                self.parameters,
                dataclasses.replace(self.config.engine, zero_stage=setting.stage, offload_optimizer=setting.offload),
                precision=self.precision,
                world_size=world_size,
                num_moments=self.num_moments,
                frozen=self.frozen,
                stages=self.config.optimizer.stages,
            )
        return self._layouts[key]

    def largest_micro_batch(self, setting: Setting, *, world_size: int, budget: int) -> int:
        """Target tokens of the largest micro-batch that fits, with source tokens in proportion; 0 if none fits.

        Args:
            setting: stage, offload and checkpointing.
            world_size: number of ranks.
            budget: memory available on a device, in bytes.
        """
        low, high = 0, 1 << 24  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            memory = self.memory(
                setting, world_size=world_size, source_tokens=self.source_for(middle), target_tokens=middle
            )
            low, high = (middle, high) if memory.peak <= budget else (low, middle)
        return low

    def most_rows(self, source_tokens: int, target_tokens: int) -> int:
        """The rows of a micro-batch of this many padded tokens whose sentences are all short."""
        stream = self.config.stream
        return max(1, min(stream.max_rows, min(source_tokens, target_tokens) // stream.length_multiple))

    def source_for(self, target_tokens: int) -> int:
        """Source tokens for a number of target tokens, in the ratio of the run's budgets."""
        stream = self.config.stream
        return max(1, target_tokens * stream.source_tokens // stream.target_tokens)

    @property
    def checkpoint_bytes(self) -> int:
        """The size of a checkpoint: of what is frozen it has the weights, and their average where one is kept."""
        of_frozen = 1 + (self.config.training.ema_decay > 0)
        numbers = round((1 + self.num_moments) * self.num_trained)
        return FLOAT * (numbers + of_frozen * (self.num_parameters - self.num_trained))

    def _save_bytes(self, world_size: int) -> int:
        """Bytes of one rank's page-locked host memory, from which asynchronous saves are written."""
        if not self.config.checkpoint.asynchronous:
            return 0
        return page_locked_bytes(-(-self.checkpoint_bytes // world_size))

    def _search_bytes(self) -> int:
        search = self.config.evaluation.search
        return search_bytes(self.config.model, search, self.vocabularies.target, ELEMENT[self.precision])

    def section(self, setting: Setting) -> ModelSection:
        """The run's section `model` with the setting's activation checkpointing."""
        return dataclasses.replace(self.config.model, activation_checkpointing=setting.checkpointing)


def usable_memory(device_bytes: int) -> int:
    """The bytes of a device's memory that tensors can use."""
    return int((device_bytes - RESERVED_BYTES) * USABLE_FRACTION)


def settings(engine: EngineSection, optimizer: Optimizer | None = None, *, checkpointing: bool) -> Iterator[Setting]:
    """All settings that the run allows, in order of their cost in time: offload costs most, then checkpointing.

    Args:
        engine: the run's section `engine`. If it has `offload_optimizer`, so have all settings.
        optimizer: the run's; what it is not sound with is omitted.
        checkpointing: whether the run uses activation checkpointing; if so, all settings do.
    """
    for offload in (False, True):
        for recomputed in (False, True):
            for stage in ALL_STAGES:
                section = dataclasses.replace(engine, zero_stage=stage, offload_optimizer=offload)
                is_allowed = (offload or not engine.offload_optimizer) and (recomputed or not checkpointing)
                is_sound = optimizer is None or optimizer.stage_problem(stage, offload=offload) is None
                if is_allowed and is_sound and not any(section.problems()):
                    yield Setting(stage=stage, offload=offload, checkpointing=recomputed)
