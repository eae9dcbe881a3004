"""Latency of an update, which does not depend on FLOPs or bytes: kernel launches, and round trips of collectives.

Both are estimates. The host launches kernels one after the other, so a small model is only as fast as its host. Kernels
were counted on a simulated device (`python -m benchmarks.device.budget`). The number of kernels of a micro-batch is
proportional to the number of the model's tensors, as is the number that ZeRO-3 adds; what the other stages add hardly
depends on it. A collective goes up and down a tree (Sanders, Speck and Träff, 2009), as in NCCL, within nodes and
between them. The time of a hop is of the order of those in NCCL's tuning table for large messages.
"""

import math

from launcher.planning.costs.memory import MemoryModel, Setting
from launcher.planning.costs.model_states import BUCKET_ELEMENTS, WHOLE_BUCKET_ELEMENTS, Layout

LAUNCH_SECONDS = 6e-6
"""Seconds that a host takes to launch a kernel from Python."""
KERNELS_PER_TENSOR = 1.73
"""Kernels of a micro-batch, forward and backward, per tensor of the model: 437 for the 253 of `vaswani_base`."""
KERNELS_OF_DEEPSPEED = {0: (8, 12), 1: (10, 18), 2: (18, 15)}
"""Kernels that a stage adds per micro-batch, and those of the optimizer step."""
KERNELS_OF_ZERO_3 = 1.74, 0.68
"""The same for stage 3, per tensor: 440 and 173. Some are the model's own, as its hooks prevent joined layers."""
HOP_WITHIN, HOP_BETWEEN = 4e-6, 14e-6
"""Seconds of a hop between GPUs of one node, and between nodes."""


def num_kernels(model: MemoryModel, setting: Setting, *, num_slots: int) -> int:
    """Number of kernels of one rank in an update.

    Args:
        model: the run's memory model.
        setting: stage, offload, checkpointing.
        num_slots: micro-batches per rank.
    """
    tensors = len(model.parameters)
    added, step = KERNELS_OF_DEEPSPEED.get(setting.stage, (0, 0))
    if setting.stage == 3:
        added, step = (round(each * tensors) for each in KERNELS_OF_ZERO_3)
    once = KERNELS_PER_TENSOR * tensors * (4 / 3 if setting.checkpointing else 1)
    return round(num_slots * (once + added) + step)


def num_collectives(layout: Layout, *, num_slots: int) -> int:
    """Number of successive collectives in an update.

    Args:
        layout: the model's layout over several ranks.
        num_slots: micro-batches per rank.
    """
    if layout.stage == 0:
        return math.ceil(layout.all / WHOLE_BUCKET_ELEMENTS)
    reduced = math.ceil(layout.all / layout.zero_key("reduce_bucket_size", BUCKET_ELEMENTS))
    if layout.stage < 3:
        return (num_slots if layout.stage == 2 else 1) * reduced + 1
    return num_slots * (2 * layout.num_released + reduced) + 1


def round_trip(*, nodes: int, gpus_per_node: int) -> float:
    """Seconds of a collective over all ranks that sends no data."""
    within, between = math.ceil(math.log2(gpus_per_node)), math.ceil(math.log2(nodes))
    return 2 * (HOP_WITHIN * within + HOP_BETWEEN * between)
