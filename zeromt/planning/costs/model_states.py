"""Memory of the model states (weights, gradients, optimizer state) on one rank with DeepSpeed 0.19 and our engine.

The stages are those of ZeRO (Rajbhandari et al., 2020, section 5). The sizes differ from the paper's 2 + 2 + 12 bytes,
because gradients are summed in fp32 and because of DeepSpeed's own copies. DeepSpeed's classes:

- stage 0: torch's optimizer in fp32; in bf16 and fp16 stage 1, but for optimizers that work at stage 0 alone
- stages 1 and 2: `DeepSpeedZeroOptimizer`, to which our engine gives sums: at stage 1 in half precision of the whole
  gradient in fp32, at stage 2 of the rank's partition; where the reduction is left to DeepSpeed, `BF16_Optimizer` at
  stage 1 in bf16, and at stage 2 in fp32 and fp16 the whole gradient of every parameter that overlaps the partition
- stage 3: `DeepSpeedZeroOptimizer_Stage3`, which divides each parameter separately, rounding up; small ones stay
  gathered
"""

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from configs import EngineSection, RunConfig, UserError
from configs.components.training import ALL_STAGES
from model.parameters import Parameter

FLOAT = 4
"""Bytes of an fp32 number."""
ELEMENT = {"fp32": 4, "bf16": 2, "fp16": 2}


BUCKET_ELEMENTS = 50_000_000
"""Must equal `BUCKET_ELEMENTS` of `trainer.engines.deepspeed.config`, which needs torch; a test compares them."""
EARLY_BUCKET_ELEMENTS, ON_THE_WAY = 25_000_000, 2
"""Must equal those of `trainer.engines.deepspeed.config` and `.reduction`, likewise."""
WHOLE_BUCKET_ELEMENTS = 500_000_000
"""Elements that DeepSpeed's engine reduces at once at stage 0."""
PERSISTENT_ELEMENTS = 100_000
"""DeepSpeed's `stage3_param_persistence_threshold`."""
LIVE_ELEMENTS = 1_000_000_000
"""DeepSpeed's `stage3_max_live_parameters` and `stage3_max_reuse_distance`."""


def num_moments(config: RunConfig, parameters: Sequence[Parameter]) -> float:
    """Numbers kept for a weight that is trained besides itself, in the mean of all: states of the optimizer, a moving
    average.

    Args:
        config: of the run.
        parameters: that are trained.
    """
    states_of = config.optimizer.states_of
    kept = sum(math.prod(shape) for p in parameters for shape in states_of(p.name, p.shape).values())
    return kept / max(sum(p.size for p in parameters), 1) + (config.training.ema_decay > 0)


@dataclass(kw_only=True, slots=True, frozen=True)
class ModelStates:
    """Bytes on one rank."""

    weights: int
    """Weights in the training precision, between updates."""
    live_weights: int
    """Stage 3: further weights that are still gathered at the end of a forward pass."""
    gradients: int
    """Gradients between the micro-batches of an update, at most."""
    optimizer: int
    """fp32 master weights and the optimizer's states; in fp32 at stage 0 there are no master weights."""
    buckets: int
    """Communication buffers, and the temporary memory of a reduction."""
    buckets_in_backward: int
    """The part of `buckets` that exists at the same time as the activations."""
    step: int
    """Temporary memory of the optimizer's step."""
    start: int
    """Memory before the engine exists: the whole fp32 model is on the device at every stage."""
    host_gradients: int
    """Offloaded gradients."""
    host_optimizer: int
    """Offloaded optimizer state."""
    host_buffers: int
    """Buffers for copies between host and device."""
    host_frozen: int
    """The exact weights of what is frozen, where the model has them in half precision."""

    @property
    def total(self) -> int:
        """Weights, gradients and optimizer state on the device."""
        return self.weights + self.gradients + self.optimizer

    @property
    def host(self) -> int:
        """Everything in host memory."""
        return self.host_gradients + self.host_optimizer + self.host_buffers + self.host_frozen


class Layout:
    """How a model's elements are distributed over the ranks.

    Args:
        parameters: the model's parameters, in order.
        engine: the section `engine`: stage, offload and DeepSpeed's own keys.
        precision: fp32, bf16 or fp16.
        world_size: number of ranks.
        num_moments: numbers kept for a weight; see the function `num_moments`.
        rank: the rank to describe; by default the one that holds most.
        frozen: names of parameters that are not trained.
        stages: at which the optimizer is sound.
    """

    def __init__(
        self,
        parameters: Sequence[Parameter],
        engine: EngineSection,
        *,
        precision: str,
        world_size: int,
        rank: int | None = None,
        num_moments: float,
        frozen: Collection[str] = frozenset(),
        stages: Collection[int] = ALL_STAGES,
    ) -> None:
        self.num_moments = num_moments
        engine = engine.in_precision(precision, stages)
        self.stage, self.offload = engine.zero_stage, engine.offload_optimizer
        self.precision, self.element = precision, ELEMENT[precision]
        self.world_size = world_size
        self._keys = engine.zero_optimization
        self.reduces_in_buckets = engine.reduces_in_buckets
        # counted by size, because a model has many tensors but few sizes
        sizes = Counter([p.size for p in parameters])
        self.all = sum(number * size for size, number in sizes.items())
        self.largest = max(sizes)
        trained = [p for p in parameters if p.name not in frozen]
        self.trained = sum(p.size for p in trained)
        self.largest_trained = max(p.size for p in trained)
        self.frozen = self.all - self.trained
        self._groups = self._cut(trained)
        self.flat = sum(round_up(sum(group), 2 * world_size) for group in self._groups)
        self.partition = self.flat // world_size
        self.shards = sum(number * -(-size // world_size) for size, number in sizes.items())
        self.trained_shards = sum(-(-p.size // world_size) for p in trained)
        threshold = self.zero_key("stage3_param_persistence_threshold", PERSISTENT_ELEMENTS)
        # gathered parameters are padded to a multiple of the number of ranks
        whole = [(size, n * (round_up(size, world_size) if world_size > 1 else 0)) for size, n in sizes.items()]
        self.persistent = sum(gathered for size, gathered in whole if size <= threshold)
        self.released = sum(gathered for size, gathered in whole if size > threshold)
        self.num_released = sum(number for size, number in sizes.items() if size > threshold)
        live = self.zero_key("stage3_max_live_parameters", LIVE_ELEMENTS)
        # between a weight's use in the forward and in the backward pass, all later weights are used twice
        self.live = min(self.released, live, self.zero_key("stage3_max_reuse_distance", LIVE_ELEMENTS) // 2)
        self._rank = rank

    @property
    def bucket(self) -> int:
        """The most elements of a reduction bucket of several parameters."""
        return self.zero_key(
            "reduce_bucket_size", EARLY_BUCKET_ELEMENTS if self.reduces_in_buckets else BUCKET_ELEMENTS
        )

    def zero_key(self, name: str, default: int) -> int:
        """The value of a key of `zero_optimization` that is a number of elements.

        Raises:
            UserError: the value is not such a number.
        """
        value = self._keys.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 62:
            raise UserError(f"engine.zero_optimization.{name}: {value!r}; allowed is a number of elements from 0")
        return int(value)

    def _cut(self, trained: Sequence[Parameter]) -> list[list[int]]:
        """Sizes of the parameters of each group, as of `trainer.engines.optimizer_states.decay_groups`."""
        open_: dict[bool, list[int]] = {}
        groups: list[list[int]] = []
        for p in reversed(trained):
            kind = len(p.shape) < 2
            is_full = self.reduces_in_buckets and sum(open_.get(kind, ())) + p.size > self.bucket
            if kind not in open_ or is_full:
                open_[kind] = []
                groups.append(open_[kind])
            open_[kind].insert(0, p.size)
        return groups

    @property
    def num_groups(self) -> int:
        """Groups of parameters, each of which is gathered by a collective after a step."""
        return len(self._groups)

    @property
    def sums_in_place(self) -> bool:
        """Whether the whole gradient is summed in fp32 over micro-batches."""
        return self.reduces_in_buckets and self.stage == 1 and self.precision != "fp32"

    def touched(self) -> int:
        """Number of elements of all parameters that overlap the rank's partition.

        On the device, the padding of the last partition is a tensor too.
        """
        return sum(_touched(group, self.world_size, self._rank, is_filled=not self.offload) for group in self._groups)


def model_states(layout: Layout) -> ModelStates:
    """Memory of the model states on one rank."""
    gradients, host_gradients = _gradients(layout)
    optimizer = _optimizer(layout)
    buckets, in_backward = _buckets(layout)
    is_sharded = layout.stage == 3
    whole = layout.flat + layout.frozen if layout.stage else layout.all
    weights = layout.shards + layout.persistent if is_sharded else whole
    offloaded = layout.offload and layout.stage > 0
    own = layout.trained_shards if is_sharded else layout.partition
    in_step = FLOAT * layout.partition if layout.reduces_in_buckets else 0
    return ModelStates(
        weights=weights * layout.element,
        live_weights=layout.live * layout.element if is_sharded else 0,
        gradients=gradients,
        optimizer=0 if offloaded else optimizer,
        buckets=buckets,
        buckets_in_backward=in_backward,
        step=_step(layout),
        start=max(FLOAT * layout.all + layout.element * layout.largest, layout.element * (layout.all + layout.flat)),
        host_gradients=host_gradients,
        host_optimizer=optimizer if offloaded else 0,
        host_buffers=layout.element * (own + layout.largest_trained) + in_step if offloaded else 0,
        host_frozen=0 if layout.precision == "fp32" else FLOAT * -(-layout.frozen // layout.world_size),
    )


def _optimizer(layout: Layout) -> int:
    if layout.stage == 0:
        return round(FLOAT * layout.trained * (layout.num_moments + (layout.precision != "fp32")))
    return round(FLOAT * (1 + layout.num_moments) * (layout.trained_shards if layout.stage == 3 else layout.partition))


def _gradients(layout: Layout) -> tuple[int, int]:
    """Bytes of gradients on the device and in host memory."""
    if layout.sums_in_place:
        return FLOAT * layout.flat, 0
    if layout.reduces_in_buckets:
        return FLOAT * (layout.partition if layout.stage == 2 else layout.trained), 0
    summed = ELEMENT["fp16"] if layout.precision == "fp16" else FLOAT
    if layout.stage == 0:
        return summed * layout.trained, 0
    if layout.stage == 3:
        own = summed * layout.trained_shards
        return (0, own + FLOAT * layout.trained_shards) if layout.offload else (own, 0)
    is_flat = layout.precision == "bf16"
    if layout.stage == 1:
        if layout.offload:
            return summed * layout.trained, FLOAT * layout.partition
        return FLOAT * layout.flat if is_flat else summed * layout.trained, 0
    if layout.offload:
        flat = FLOAT * layout.partition if is_flat else 0
        return flat, FLOAT * layout.partition + (0 if is_flat else FLOAT * layout.touched())
    return (FLOAT * layout.partition if is_flat else summed * layout.touched()), 0


def _buckets(layout: Layout) -> tuple[int, int]:
    """Bytes of buckets and of a reduction, and the part of them that exists at the same time as the activations."""
    bucket = layout.bucket
    reduced = min(max(bucket, layout.largest_trained), layout.trained)
    if layout.sums_in_place:
        # a micro-batch's gradients, and a flat copy of some of them that is added to the sums
        return layout.element * (layout.trained + reduced), 0
    if layout.stage == 0 and layout.world_size == 1:  # nothing is reduced
        return 0, 0
    if layout.stage == 0:  # gradients are flattened after the last backward pass
        return FLOAT * min(layout.trained, WHOLE_BUCKET_ELEMENTS + layout.largest_trained), 0
    if layout.stage == 3:
        buffer = FLOAT * bucket  # permanent, in fp32, in which gradients are communicated
        return (both := buffer + reduced * 2 * FLOAT + FLOAT * reduced // layout.world_size), both
    if layout.reduces_in_buckets:  # gradients that wait for their bucket, a copy side by side, and those that are sent
        waiting = layout.element if layout.stage == 2 else 0
        copied = 0 if layout.precision == "fp32" else layout.element
        return (both := reduced * (waiting + copied + ON_THE_WAY * FLOAT)), both
    staged = FLOAT if layout.stage == 1 and layout.precision == "bf16" else layout.element
    buffer = staged * bucket
    buffer += layout.element * layout.largest_trained if layout.offload else 0
    reduction = reduced * (staged + (0 if staged == FLOAT else FLOAT))
    return buffer + reduction, buffer + (reduction if layout.stage == 2 else 0)


def _step(layout: Layout) -> int:
    """Bytes of the flat fp32 copy of the gradients that is made for the step if they are not stored like that."""
    if layout.offload or layout.stage == 0:
        return 0
    if layout.stage == 3:
        return FLOAT * layout.trained_shards
    is_flat = layout.precision == "bf16" or layout.sums_in_place or (layout.stage == 2 and layout.reduces_in_buckets)
    return 0 if is_flat else FLOAT * layout.partition


def _touched(sizes: Sequence[int], world_size: int, rank: int | None, *, is_filled: bool) -> int:
    partition = round_up(sum(sizes), 2 * world_size) // world_size
    ends = list(itertools.accumulate(sizes))

    def of(number: int) -> int:
        first = bisect.bisect_right(ends, number * partition)
        last = bisect.bisect_left(ends, (number + 1) * partition)
        filling = world_size * partition - ends[-1] if is_filled and number == world_size - 1 else 0
        return sum(sizes[first : last + 1]) + filling

    return max(of(number) for number in (range(world_size) if rank is None else [rank]))


def round_up(number: int, multiple: int) -> int:
    """The least multiple of `multiple` that is not below `number`."""
    return -(-number // multiple) * multiple
