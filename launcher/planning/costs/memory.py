"""Device memory of one rank: the engine's states and a micro-batch, at the moment when they need most."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from configs import EngineSection, ModelSection, RunConfig
from launcher.planning.costs.activations import activations, output_bytes
from launcher.planning.costs.model_states import (
    ELEMENT,
    FLOAT,
    Layout,
    ModelStates,
    model_states,
    num_moments,
)
from model.costs.flops import BatchShape
from model.parameters import Parameter, Vocabularies, parameters, search_bytes
from trainer.runs.process.page_locked import page_locked_bytes

WORKSPACE = 32 << 20
"""Of cuBLAS, on Hopper (8 MiB on what came before)."""
RESERVED = 1 << 30
"""Outside torch's allocator: the CUDA context and NCCL's buffers."""
USABLE = 0.95
"""Of the rest: what fragmentation leaves."""

Stage = Literal[0, 1, 2, 3]


@dataclass(kw_only=True, slots=True, frozen=True)
class Setting:
    """What may be chosen to save memory."""

    stage: Stage
    offload: bool
    checkpointing: bool

    def __str__(self) -> str:
        extras = ["offload"] * self.offload + ["checkpointing"] * self.checkpointing
        return " + ".join([f"ZeRO-{self.stage}", *extras])


@dataclass(kw_only=True, slots=True, frozen=True)
class Memory:
    """Bytes of one rank's device, by part, at the peak."""

    setting: Setting
    weights: int
    gradients: int
    optimizer: int
    activations: int
    output: int
    buckets: int
    copy: int
    """The plain model that evaluation decodes with at every stage; it stays from the first one on."""
    step: int
    """What the optimizer's step takes beside the states; it comes when activations are gone."""
    moments: Mapping[str, int]
    """All that is held at the end of a forward pass and the begin of the `backward` pass, in the `reduction`, in the
    `step`, in an `evaluation`, and at the `start`, before the engine."""
    peak: int
    """The most of these."""
    moment: str
    """When that is."""
    host: int
    """In host memory: what is offloaded, and a copy for saves."""


class MemoryModel:
    """The memory of a run for any setting, micro-batch and number of ranks.

    Args:
        config: the run's.
        vocabularies: of its tokenizer.
        precision: fp32, bf16 or fp16.
    """

    def __init__(self, config: RunConfig, vocabularies: Vocabularies, *, precision: str) -> None:
        self.config, self.vocabularies, self.precision = config, vocabularies, precision
        self.parameters: Sequence[Parameter] = parameters(config.model, vocabularies)
        self.num_parameters = sum(p.size for p in self.parameters)
        # asked for at every step of a bisection; checkpointing does not matter to them
        self._states: dict[tuple[int, bool, int], ModelStates] = {}
        self._layouts: dict[tuple[int, bool, int], Layout] = {}

    def memory(self, setting: Setting, *, world_size: int, source_tokens: int, target_tokens: int) -> Memory:
        """Bytes with micro-batches of so many padded tokens."""
        states, model = self.states(setting, world_size), self.section(setting)
        # one row of all tokens: on a GPU lengths do not matter
        shape = BatchShape(rows=1, source=source_tokens, target=target_tokens)
        layers = activations(model, shape, precision=self.precision)
        output = output_bytes(model, self.config.loss, self.vocabularies, target_tokens, precision=self.precision)
        # the gradient of the output's matrix waits for that of the embedding, where they are one
        matrix = self.vocabularies.target * model.d_model * ELEMENT[self.precision]
        batch = layers.total + max(output.total, layers.working + matrix)
        copy = ELEMENT[self.precision] * self.num_parameters
        resident = copy if self.config.evaluation.every_updates else 0
        training = states.total + states.live_weights + WORKSPACE + resident
        moments = {
            "backward": training + batch + states.buckets_in_backward,
            "reduction": training + states.buckets,
            "step": training + states.step,
            "evaluation": states.total + WORKSPACE + copy + self._search_bytes(),
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
        """What the engine holds, whatever the micro-batch."""
        key = setting.stage, setting.offload, world_size
        if key not in self._states:
            self._states[key] = model_states(self.layout(setting, world_size))
        return self._states[key]

    def layout(self, setting: Setting, world_size: int) -> Layout:
        """How many elements of the model lie where."""
        key = setting.stage, setting.offload, world_size
        if key not in self._layouts:
            self._layouts[key] = Layout(
                self.parameters,
                dataclasses.replace(self.config.engine, zero_stage=setting.stage, offload_optimizer=setting.offload),
                precision=self.precision,
                world_size=world_size,
                num_moments=num_moments(self.config),
            )
        return self._layouts[key]

    def largest(self, setting: Setting, *, world_size: int, budget: int) -> int:
        """The most target tokens of a micro-batch that fit so many bytes, with source tokens in proportion; 0: none.

        Args:
            setting: stage, offload and checkpointing.
            world_size: number of ranks.
            budget: bytes.
        """
        low, high = 0, 1 << 24  # low fits, high does not
        while high - low > 1:
            middle = (low + high) // 2
            found = self.memory(
                setting, world_size=world_size, source_tokens=self.source_for(middle), target_tokens=middle
            )
            low, high = (middle, high) if found.peak <= budget else (low, middle)
        return low

    def source_for(self, target_tokens: int) -> int:
        """Source tokens in the proportion of the run's budgets."""
        stream = self.config.stream
        return max(1, target_tokens * stream.source_tokens // stream.target_tokens)

    def _save_bytes(self, world_size: int) -> int:
        """Page-locked, of the copy that a save is written from while training goes on; an even share."""
        if not self.config.checkpoint.asynchronous:
            return 0
        numbers = 1 + num_moments(self.config) + (self.config.training.ema_decay > 0)
        return page_locked_bytes(FLOAT * numbers * -(-self.num_parameters // world_size))

    def _search_bytes(self) -> int:
        search = self.config.evaluation.search
        return search_bytes(self.config.model, search, self.vocabularies.target, ELEMENT[self.precision])

    def section(self, setting: Setting) -> ModelSection:
        """The model with checkpointing or without."""
        return dataclasses.replace(self.config.model, activation_checkpointing=setting.checkpointing)


def usable(device_bytes: int) -> int:
    """What a rank's tensors may take of a device's memory."""
    return int((device_bytes - RESERVED) * USABLE)


def settings(engine: EngineSection, *, checkpointing: bool) -> Iterator[Setting]:
    """All settings, the least costly in time first: by stage, then with checkpointing, then with offload.

    Args:
        engine: what the run asks for: with `offload_optimizer` there is no setting without, and a stage that refuses
            one of the keys in `zero_optimization` is left out.
        checkpointing: whether the run asks for it.
    """
    for offload in (False, True):
        for recomputed in (False, True):
            for stage in (0, 1, 2, 3):
                section = dataclasses.replace(engine, zero_stage=stage, offload_optimizer=offload)
                is_wanted = (offload or not engine.offload_optimizer) and (recomputed or not checkpointing)
                if is_wanted and not any(section.problems()):
                    yield Setting(stage=stage, offload=offload, checkpointing=recomputed)
