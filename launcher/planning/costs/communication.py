"""Bytes that each rank sends for an update, as DeepSpeed 0.19 sends them.

Rings (Patarasuk and Yuan, 2009): to all-reduce n bytes each of W ranks sends 2 n (W - 1) / W, to gather or to
reduce-scatter them half as much. Stages 1 and 2 all-reduce gradients, where the ZeRO paper reduce-scatters; stage 2
does so for every micro-batch, stages 0 and 1 once an update. Gradients travel in fp32 at every stage, weights in the
training's precision. Latency is a matter of `latency.py`; the trainer's own messages are left out.
"""

from dataclasses import dataclass

from launcher.planning.costs.memory import MemoryModel, Setting
from launcher.planning.costs.model_states import ELEMENT, FLOAT


@dataclass(kw_only=True, slots=True, frozen=True)
class Volume:
    """Bytes that go into collectives during one update, whole tensors being counted."""

    all_reduced: int
    gathered: int
    scattered: int

    def sent(self, world_size: int) -> float:
        """Bytes that one rank sends, and receives."""
        return (2 * self.all_reduced + self.gathered + self.scattered) * (world_size - 1) / world_size


def volume(model: MemoryModel, setting: Setting, *, world_size: int, num_slots: int) -> Volume:
    """Of one update.

    Args:
        model: the run.
        setting: stage, offload, checkpointing.
        world_size: number of ranks.
        num_slots: micro-batches of one rank.
    """
    layout = model.layout(setting, world_size)
    element = ELEMENT[model.precision]
    if setting.stage == 0:
        return Volume(all_reduced=FLOAT * layout.all if world_size > 1 else 0, gathered=0, scattered=0)
    if setting.stage < 3:
        times = num_slots if setting.stage == 2 else 1
        return Volume(all_reduced=times * FLOAT * layout.all, gathered=element * layout.flat, scattered=0)
    # In the backward pass what was released meanwhile is gathered again; what stays gathered is so after each step.
    released = layout.released + (layout.released - layout.live)
    gathered = element * (num_slots * released + layout.persistent)
    return Volume(all_reduced=0, gathered=gathered, scattered=num_slots * FLOAT * layout.shards * world_size)
