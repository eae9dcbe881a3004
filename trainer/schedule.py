"""The learning rate as a pure function of applied updates."""

import math

from configs import ScheduleSection


def learning_rate(section: ScheduleSection, *, peak: float, update: int, max_updates: int) -> float:
    """The rate of an update.

    Args:
        peak: the highest rate, reached at the end of the warm-up.
        update: number of the update, from 1, counting those that were applied.
        max_updates: where cosine and linear decay end.

    inverse_sqrt is Vaswani et al. (2017), section 5.3, scaled to `peak`; cosine is Loshchilov and Hutter (2017) without
    restarts.
    """
    if update <= section.warmup_updates:
        return peak * update / section.warmup_updates
    floor = section.min_lr_ratio
    if section.kind == "constant":
        return peak
    if section.kind == "inverse_sqrt":
        return peak * max(floor, math.sqrt(max(section.warmup_updates, 1) / update))
    # the first update after the warm-up still runs at the peak when there was none
    done = (update - max(section.warmup_updates, 1)) / max(max_updates - max(section.warmup_updates, 1), 1)
    done = min(max(done, 0.0), 1.0)
    share = 1 - done if section.kind == "linear" else (1 + math.cos(math.pi * done)) / 2
    return peak * (floor + (1 - floor) * share)
