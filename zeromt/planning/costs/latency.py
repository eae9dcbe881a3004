"""Latency of an update's collectives, which does not depend on the bytes that they send: an estimate.

A collective goes up and down a tree (Sanders, Speck and Träff, 2009), as in NCCL, within nodes and between them. The
time of a hop is of the order of those in NCCL's tuning table for large messages.
"""

import math

from zeromt.planning.costs.model_states import BUCKET_ELEMENTS, WHOLE_BUCKET_ELEMENTS, Layout

HOP_WITHIN, HOP_BETWEEN = 4e-6, 14e-6
"""Seconds of a hop between GPUs of one node, and between nodes."""


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
