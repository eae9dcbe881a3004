"""What an update costs before a FLOP is done or a byte is sent: launches of kernels, and collectives' round trips.

Both are estimated. A GPU gets one kernel after the other from its host, so that a small model is as slow as its host.
The kernels were counted on a device that is not there (`python -m benchmarks.device.budget`): those of a micro-batch
go with the number of the model's tensors, and so does what ZeRO-3 adds; what the other stages add hardly does.
A collective goes down a tree and up again (Sanders, Speck and Träff, 2009), as NCCL's does, within nodes and between
them; times of a hop are of the order that NCCL's own tuning table has for its protocol for large messages.
"""

import math

from launcher.planning.costs.memory import MemoryModel, Setting
from launcher.planning.costs.model_states import BUCKET_ELEMENTS, WHOLE_BUCKET_ELEMENTS, Layout

LAUNCH = 6e-6
"""Seconds that a host takes to launch a kernel from Python."""
KERNELS_OF_A_TENSOR = 1.73
"""Of a micro-batch, forward and backward, with the kernels for GPUs: 437 of `vaswani_base`, with 253 tensors."""
KERNELS_OF_DEEPSPEED = {0: (8, 12), 1: (10, 18), 2: (18, 15)}
"""That a stage adds to a micro-batch, and those of the step."""
KERNELS_OF_ZERO_3 = 1.74, 0.68
"""The same of stage 3, for each tensor: 440 and 173. Some are the model's: its hooks keep layers from being joined."""
HOP_WITHIN, HOP_BETWEEN = 4e-6, 14e-6
"""Seconds of a hop between GPUs of a node, and between nodes."""


def num_kernels(model: MemoryModel, setting: Setting, *, num_slots: int) -> int:
    """Kernels of an update.

    Args:
        model: the run.
        setting: stage, offload, checkpointing.
        num_slots: micro-batches of one rank.
    """
    tensors = len(model.parameters)
    added, step = KERNELS_OF_DEEPSPEED.get(setting.stage, (0, 0))
    if setting.stage == 3:
        added, step = (round(each * tensors) for each in KERNELS_OF_ZERO_3)
    once = KERNELS_OF_A_TENSOR * tensors * (4 / 3 if setting.checkpointing else 1)
    return round(num_slots * (once + added) + step)


def num_collectives(layout: Layout, *, num_slots: int) -> int:
    """Collectives of an update, one after the other.

    Args:
        layout: of the model over several ranks.
        num_slots: micro-batches of one rank.
    """
    if layout.stage == 0:
        return math.ceil(layout.all / WHOLE_BUCKET_ELEMENTS)
    reduced = math.ceil(layout.all / layout.key("reduce_bucket_size", BUCKET_ELEMENTS))
    if layout.stage < 3:
        return (num_slots if layout.stage == 2 else 1) * reduced + 1
    return num_slots * (2 * layout.num_released + reduced) + 1


def round_trip(*, nodes: int, gpus_per_node: int) -> float:
    """Seconds of a collective of no bytes over all ranks."""
    within, between = math.ceil(math.log2(gpus_per_node)), math.ceil(math.log2(nodes))
    return 2 * (HOP_WITHIN * within + HOP_BETWEEN * between)
