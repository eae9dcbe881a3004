"""Bytes of weights, gradients and optimizer state on one rank, as DeepSpeed 0.19 lays them out for our engine.

The stages are those of ZeRO (Rajbhandari et al., 2020, section 5); the sizes are not the paper's 2 + 2 + 12 bytes,
because gradients add up in fp32 and because DeepSpeed keeps what it keeps. Which class does what:

- stage 0: torch's optimizer in fp32; `FP16_UnfusedOptimizer` in bf16 and fp16, to which our engine gives fp32 gradients
- stage 1 in bf16: `BF16_Optimizer`, which keeps the whole fp32 gradient beside the bf16 one
- stages 1 and 2: `DeepSpeedZeroOptimizer`; in bf16 stage 2 keeps one flat fp32 partition of the gradient, else every
  parameter that its partition touches, whole
- stage 3: `DeepSpeedZeroOptimizer_Stage3`: each parameter is divided by itself and rounded up; small ones stay
  gathered
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from configs import EngineSection, RunConfig, UserError
from model.parameters import Parameter

FLOAT = 4
"""Bytes of an fp32 number."""
ELEMENT = {"fp32": 4, "bf16": 2, "fp16": 2}


BUCKET_ELEMENTS = 50_000_000
"""`BUCKET_ELEMENTS` of `trainer.engines.deepspeed.config`, which torch alone can import; a test holds them together."""
WHOLE_BUCKET_ELEMENTS = 500_000_000
"""What DeepSpeed's engine reduces at once where no stage does it."""
PERSISTENT_ELEMENTS = 100_000
"""DeepSpeed's `stage3_param_persistence_threshold`."""
LIVE_ELEMENTS = 1_000_000_000
"""DeepSpeed's `stage3_max_live_parameters` and `stage3_max_reuse_distance`."""


def num_moments(config: RunConfig) -> int:
    """Numbers that are kept of every parameter: the optimizer's states, and the moving average where there is one."""
    return len(config.optimizer.states) + (config.training.ema_decay > 0)


@dataclass(kw_only=True, slots=True, frozen=True)
class ModelStates:
    """Bytes on one rank."""

    weights: int
    """In the precision of the training, at rest."""
    live_weights: int
    """Stage 3: what is gathered beside that at the end of a forward pass."""
    gradients: int
    """At most, between the micro-batches of an update."""
    optimizer: int
    """fp32 masters and the optimizer's states; in fp32 at stage 0 there are no masters."""
    buckets: int
    """Buffers of the communication, and what a reduction takes beside them."""
    buckets_in_backward: int
    """As much of them as there is while activations are held."""
    step: int
    """What the optimizer's step takes for a while."""
    start: int
    """What there is before the engine: the model in fp32, on the device as a whole at every stage."""
    host_gradients: int
    """What of the gradients is offloaded."""
    host_optimizer: int
    host_buffers: int
    """Copies on their way."""

    @property
    def total(self) -> int:
        """Weights, gradients and optimizer state on the device."""
        return self.weights + self.gradients + self.optimizer

    @property
    def host(self) -> int:
        """In host memory."""
        return self.host_gradients + self.host_optimizer + self.host_buffers


class Layout:
    """How many elements of a model lie where.

    Args:
        found: the model's parameters, in order.
        engine: stage, offload and DeepSpeed's own keys.
        precision: fp32, bf16 or fp16.
        world_size: number of ranks.
        num_moments: what is kept of every parameter; see `num_moments`.
        rank: which one; the fullest unless given.
    """

    def __init__(
        self,
        found: Sequence[Parameter],
        engine: EngineSection,
        *,
        precision: str,
        world_size: int,
        rank: int | None = None,
        num_moments: int,
    ) -> None:
        self.num_moments = num_moments
        self.stage, self.offload = engine.zero_stage, engine.offload_optimizer
        self.precision, self.element = precision, ELEMENT[precision]
        self.world_size = world_size
        self._keys = engine.zero_optimization
        self.overlaps = bool(self._keys.get("overlap_comm", False))
        # a model has many tensors and few sizes
        sizes = Counter([p.size for p in found])
        self.all = sum(number * size for size, number in sizes.items())
        self.largest = max(sizes)
        # as `trainer.engines.adamw.decay_groups` splits them
        groups: list[list[int]] = [[], []]
        for p in found:
            groups[len(p.shape) < 2].append(p.size)
        self._groups = [group for group in groups if group]
        self.flat = sum(_round_up(sum(group), 2 * world_size) for group in self._groups)
        self.partition = self.flat // world_size
        self.shards = sum(number * -(-size // world_size) for size, number in sizes.items())
        threshold = self.key("stage3_param_persistence_threshold", PERSISTENT_ELEMENTS)
        # what is gathered is a multiple of the ranks
        whole = [(size, n * (_round_up(size, world_size) if world_size > 1 else 0)) for size, n in sizes.items()]
        self.persistent = sum(gathered for size, gathered in whole if size <= threshold)
        self.released = sum(gathered for size, gathered in whole if size > threshold)
        self.num_released = sum(number for size, number in sizes.items() if size > threshold)
        live = self.key("stage3_max_live_parameters", LIVE_ELEMENTS)
        # from its forward to its backward use lies twice what follows it
        reused = self.key("stage3_max_reuse_distance", LIVE_ELEMENTS) // 2
        self.live = min(self.released, live, reused)
        self._rank = rank

    def key(self, name: str, default: int) -> int:
        """A number of DeepSpeed's own.

        Raises:
            UserError: it is none.
        """
        value = self._keys.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1 << 62:
            raise UserError(f"engine.zero_optimization.{name}: {value!r}; allowed is a number of elements from 0")
        return int(value)

    def touched(self) -> int:
        """Elements of all parameters of which a part lies in the rank's partition.

        On the device what fills the last partition up is a tensor too.
        """
        return sum(_touched(group, self.world_size, self._rank, is_filled=not self.offload) for group in self._groups)


def model_states(layout: Layout) -> ModelStates:
    """The bytes of one rank."""
    gradients, host_gradients = _gradients(layout)
    optimizer = _optimizer(layout)
    buckets, in_backward = _buckets(layout)
    is_sharded = layout.stage == 3
    weights = layout.shards + layout.persistent if is_sharded else layout.flat if layout.stage else layout.all
    offloaded = layout.offload and layout.stage > 0
    own = layout.shards if is_sharded else layout.partition
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
        host_buffers=layout.element * (own + layout.largest) if offloaded else 0,
    )


def _optimizer(layout: Layout) -> int:
    if layout.stage == 0:
        return FLOAT * layout.all * (layout.num_moments + (layout.precision != "fp32"))
    return FLOAT * (1 + layout.num_moments) * (layout.shards if layout.stage == 3 else layout.partition)


def _gradients(layout: Layout) -> tuple[int, int]:
    """Bytes on the device and in host memory."""
    summed = ELEMENT["fp16"] if layout.precision == "fp16" and layout.stage else FLOAT
    if layout.stage == 0:
        return summed * layout.all, 0
    if layout.stage == 3:
        own = summed * layout.shards
        return (0, own + FLOAT * layout.shards) if layout.offload else (own, 0)
    is_flat = layout.precision == "bf16"
    if layout.stage == 1:
        if layout.offload:
            return summed * layout.all, FLOAT * layout.partition
        return FLOAT * layout.flat if is_flat else summed * layout.all, 0
    if layout.offload:
        flat = FLOAT * layout.partition if is_flat else 0
        return flat, FLOAT * layout.partition + (0 if is_flat else FLOAT * layout.touched())
    return (FLOAT * layout.partition if is_flat else summed * layout.touched()), 0


def _buckets(layout: Layout) -> tuple[int, int]:
    """Bytes of buckets and of a reduction; and those that exist while activations do."""
    bucket = layout.key("reduce_bucket_size", BUCKET_ELEMENTS)
    reduced = min(max(bucket, layout.largest), layout.all)
    is_plain_bf16 = layout.precision == "bf16" and not layout.offload
    if (layout.stage == 0 and layout.precision != "fp32") or (layout.stage == 1 and is_plain_bf16):
        # those of a micro-batch, and a piece of them side by side, to be added to the sums; reduced where they are
        return layout.element * (layout.all + min(max(BUCKET_ELEMENTS, layout.largest), layout.all)), 0
    if layout.stage == 0 and layout.world_size == 1:  # nothing is reduced
        return 0, 0
    if layout.stage == 0:  # flattened as a whole, after the last backward pass
        return FLOAT * min(layout.all, WHOLE_BUCKET_ELEMENTS + layout.largest), 0
    if layout.stage == 3:
        buffer = FLOAT * bucket  # for good, in the precision of the communication
        return (both := buffer + reduced * 2 * FLOAT + FLOAT * reduced // layout.world_size), both
    staged = FLOAT if layout.stage == 1 and layout.precision == "bf16" else layout.element
    is_laid_together = layout.stage == 2 and is_plain_bf16 and not layout.overlaps
    buffer = staged * (reduced if is_laid_together else bucket)
    buffer += layout.element * layout.largest if layout.offload else 0
    reduction = reduced * (staged + (0 if staged == FLOAT else FLOAT))
    return buffer + reduction, buffer + (reduction if layout.stage == 2 else 0)


def _step(layout: Layout) -> int:
    """A flat fp32 copy of the gradients, where they are not one already; stage 0 steps on them as they are."""
    if layout.offload or layout.stage == 0:
        return 0
    if layout.stage == 3:
        return FLOAT * layout.shards
    return 0 if layout.precision == "bf16" else FLOAT * layout.partition


def _touched(sizes: Sequence[int], world_size: int, rank: int | None, *, is_filled: bool) -> int:
    partition = _round_up(sum(sizes), 2 * world_size) // world_size
    ends = list(itertools.accumulate(sizes))

    def of(number: int) -> int:
        first = bisect.bisect_right(ends, number * partition)
        last = bisect.bisect_left(ends, (number + 1) * partition)
        filling = world_size * partition - ends[-1] if is_filled and number == world_size - 1 else 0
        return sum(sizes[first : last + 1]) + filling

    return max(of(number) for number in (range(world_size) if rank is None else [rank]))


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
