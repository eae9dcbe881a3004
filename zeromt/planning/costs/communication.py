"""Communication: the bytes that each rank sends per update with DeepSpeed 0.19, and the latency of its collectives.

In a ring (Patarasuk and Yuan, 2009), each of W ranks sends 2 n (W - 1) / W bytes to all-reduce n bytes, and half of
that to all-gather or reduce-scatter them. Stage 0 all-reduces gradients, stages 1 to 3 reduce-scatter them; but stages
1 and 2 all-reduce them with `engine.plain_deepspeed`, or DeepSpeed's keys about its own reduction.
Stages 2 and 3 do so for every micro-batch, 0 and 1 once per update. Gradients are sent in fp32 at every stage, weights
in the training precision. The trainer's own messages do not count.

The latency does not depend on the bytes, and is an estimate: a collective goes up and down a tree (Sanders, Speck and
Träff, 2009), as in NCCL, within nodes and between them. The time of a hop is of the order of those in NCCL's tuning
table for large messages.
"""

import math
from dataclasses import dataclass

from zeromt.planning.costs.memory import MemoryModel, Setting
from zeromt.planning.costs.model_states import ELEMENT, FLOAT, WHOLE_BUCKET_ELEMENTS, Layout


@dataclass(kw_only=True, slots=True, frozen=True)
class Volume:
    """Bytes of the tensors that collectives process in one update, each counted in full."""

    all_reduced: int
    gathered: int
    scattered: int

    def sent(self, world_size: int) -> float:
        """Bytes that one rank sends; it receives as many."""
        return (2 * self.all_reduced + self.gathered + self.scattered) * (world_size - 1) / world_size


def communication_volume(model: MemoryModel, setting: Setting, *, world_size: int, num_slots: int) -> Volume:
    """The communication volume of one update.

    Args:
        model: the run's memory model.
        setting: stage, offload, checkpointing.
        world_size: number of ranks.
        num_slots: micro-batches per rank.
    """
    layout = model.layout(setting, world_size)
    element = ELEMENT[model.precision]
    if layout.stage == 0:
        return Volume(all_reduced=FLOAT * layout.trained if world_size > 1 else 0, gathered=0, scattered=0)
    if layout.stage < 3:
        reduced = (num_slots if layout.stage == 2 else 1) * FLOAT * layout.trained
        gathered = element * layout.flat
        if layout.reduces_in_buckets:
            scattered = reduced * layout.flat // layout.trained
            return Volume(all_reduced=0, gathered=gathered, scattered=scattered if world_size > 1 else 0)
        return Volume(all_reduced=reduced, gathered=gathered, scattered=0)
    # Weights are gathered for the forward pass, and those released since then again for the backward pass. Persistent
    # weights are gathered once, after the step.
    released = layout.released + (layout.released - layout.live)
    gathered = element * (num_slots * released + layout.persistent)
    return Volume(all_reduced=0, gathered=gathered, scattered=num_slots * FLOAT * layout.trained_shards * world_size)


HOP_WITHIN, HOP_BETWEEN = 4e-6, 14e-6
"""Seconds of a hop between GPUs of one node, and between nodes."""


def num_collectives(layout: Layout, *, num_slots: int) -> int:
    """Number of successive collectives in an update.

    Args:
        layout: the model's layout over several ranks.
        num_slots: micro-batches per rank.
    """
    if layout.stage == 0:
        return math.ceil(layout.trained / WHOLE_BUCKET_ELEMENTS)
    reduced = layout.num_groups if layout.reduces_in_buckets else math.ceil(layout.trained / layout.bucket)
    if layout.stage < 3:
        return (num_slots if layout.stage == 2 else 1) * reduced + layout.num_groups
    return num_slots * (2 * layout.num_released + reduced) + 1


def round_trip(*, nodes: int, gpus_per_node: int) -> float:
    """Seconds of a collective over all ranks that sends no data."""
    within, between = math.ceil(math.log2(gpus_per_node)), math.ceil(math.log2(nodes))
    return 2 * (HOP_WITHIN * within + HOP_BETWEEN * between)
