"""Communication volume: the bytes that each rank sends per update with DeepSpeed 0.19.

In a ring (Patarasuk and Yuan, 2009), each of W ranks sends 2 n (W - 1) / W bytes to all-reduce n bytes, and half of
that to all-gather or reduce-scatter them. Stages 1 and 2 all-reduce gradients, although the ZeRO paper reduce-scatters
them: stage 2 for every micro-batch, stages 0 and 1 once per update. Gradients are sent in fp32 at every stage, weights
in the training precision. For latency see `latency.py`; the trainer's own messages do not count.
"""

from dataclasses import dataclass

from zeromt.planning.costs.memory import MemoryModel, Setting
from zeromt.planning.costs.model_states import ELEMENT, FLOAT


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
    if setting.stage == 0:
        return Volume(all_reduced=FLOAT * layout.all if world_size > 1 else 0, gathered=0, scattered=0)
    if setting.stage < 3:
        times = num_slots if setting.stage == 2 else 1
        return Volume(all_reduced=times * FLOAT * layout.all, gathered=element * layout.flat, scattered=0)
    # Weights are gathered for the forward pass, and those released since then again for the backward pass. Persistent
    # weights are gathered once, after the step.
    released = layout.released + (layout.released - layout.live)
    gathered = element * (num_slots * released + layout.persistent)
    return Volume(all_reduced=0, gathered=gathered, scattered=num_slots * FLOAT * layout.shards * world_size)
