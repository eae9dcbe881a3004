"""torch's Muon and AdamW as one optimizer, for whole matrices and for pieces of matrices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

MOMENTUM = "momentum_buffer"
"""What Muon keeps of a matrix."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Place:
    """Where a flat tensor has elements of a parameter."""

    shape: tuple[int, ...]
    """Of the whole parameter."""
    begin: int
    """The first of these elements in the parameter, flattened."""
    offset: int
    """The place of the first in the tensor's storage."""
    size: int
    """How many there are; 0 if this rank has none."""


class MuonAndAdamW(torch.optim.Optimizer):
    """Each group of parameters is stepped on by the optimizer whose states it is to have.

    Groups and states are one optimizer's, and both optimizers work on them: others may put other parameters into the
    groups, as DeepSpeed does.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, muon: Mapping[str, Any], adamw: Mapping[str, Any]) -> None:
        """Build both, at a rate of 0.

        Args:
            groups: of parameters, each with its `states`.
            muon: arguments of torch's Muon.
            adamw: arguments of torch's AdamW.
        """
        matrices = [group for group in groups if _is_of_muon(group)]
        others = [group for group in groups if not _is_of_muon(group)]
        self._parts: dict[bool, torch.optim.Optimizer] = {}  # both add their arguments to their groups
        if matrices:
            self._parts[True] = torch.optim.Muon(matrices, lr=0.0, **muon)
        if others:
            self._parts[False] = torch.optim.AdamW(others, lr=0.0, **adamw)
        self.places: Mapping[int, Sequence[Place]] = {}
        """For each flat tensor that is stepped instead of parameters, by its storage, what is in it: the same
        parameters in the same order on all ranks.
        """
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make a step of each."""
        for is_of_muon, part in self._parts.items():
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if _is_of_muon(group) == is_of_muon]
            if is_of_muon and any(tensor.ndim == 1 for group in part.param_groups for tensor in group["params"]):
                self._step_on_pieces(part)
            else:
                part.step()

    def _step_on_pieces(self, muon: torch.optim.Optimizer) -> None:
        """What Muon does element by element is done on the pieces, the rest on one whole matrix after the other.

        There it is torch's step with a momentum of 0, of whose result each rank takes its own elements. Before `places`
        are known a step makes the states, and no more.
        """
        for group in muon.param_groups:
            momentum = group["momentum"]
            for flat in [tensor for tensor in group["params"] if tensor.grad is not None]:
                if MOMENTUM not in self.state[flat]:
                    self.state[flat][MOMENTUM] = torch.zeros_like(flat)
                average = self.state[flat][MOMENTUM].lerp_(flat.grad, 1 - momentum)
                update = flat.grad.lerp(average, momentum) if group["nesterov"] else average
                for place in self.places.get(flat.untyped_storage().data_ptr(), ()):
                    offset = place.offset - int(flat.storage_offset())
                    own = slice(offset, offset + place.size)
                    taken = slice(place.begin, place.begin + place.size)
                    whole = torch.zeros(2, math.prod(place.shape), dtype=flat.dtype, device=flat.device)
                    whole[0, taken], whole[1, taken] = update[own], flat[own]
                    distributed.all_reduce(whole[0])
                    if place.size:
                        matrix = whole[1].view(place.shape).requires_grad_()
                        matrix.grad = whole[0].view(place.shape)
                        alone = {**group, "params": [matrix], "momentum": 0.0, "nesterov": False}
                        one: torch.optim.Optimizer = torch.optim.Muon([alone], lr=group["lr"])
                        one.step()
                        flat[own] = matrix.detach().flatten()[taken]


def _is_of_muon(group: Mapping[str, Any]) -> bool:
    return MOMENTUM in group["states"]
