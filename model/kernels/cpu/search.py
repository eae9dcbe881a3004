"""What search asks of a CPU at every step."""

import torch
from torch import Tensor

STEPS_BETWEEN_LOOKS = 1
"""See `model.kernels.steps_between_looks`."""
GROUP = 128
"""Neighbours of which the best one alone is looked at first."""


def argmax(x_NV: Tensor) -> Tensor:
    """See `model.kernels.argmax`; (N). First the best of each group of neighbours, by a maximum.

    A CPU finds that ten times as fast as its place.
    """
    in_groups = x_NV.shape[1] // GROUP * GROUP
    if in_groups == 0:
        return x_NV.argmax(-1)
    groups_NgG = x_NV[:, :in_groups].view(len(x_NV), -1, GROUP)
    best_Ng = groups_NgG.amax(-1)
    group_N1 = best_Ng.argmax(-1, keepdim=True)
    group_NG = groups_NgG.take_along_dim(group_N1[..., None], 1)[:, 0]
    place_N: Tensor = group_N1[:, 0] * GROUP + group_NG.argmax(-1)
    if in_groups == x_NV.shape[1]:
        return place_N
    rest_N, rest_place_N = x_NV[:, in_groups:].max(-1)  # the last few belong to no group
    return torch.where(rest_N > best_Ng.amax(-1), in_groups + rest_place_N, place_N)
