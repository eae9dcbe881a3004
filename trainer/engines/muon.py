"""torch's Muon and AdamW as one optimizer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from trainer.engines.adamw import AdamW, NeverCompiled

MOMENTUM = "momentum_buffer"
"""What Muon keeps of a matrix."""


class _Muon(NeverCompiled, torch.optim.Muon):
    """Muon (Jordan et al., 2024): torch's own code and states."""


class MuonAndAdamW(NeverCompiled):
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
        kinds: tuple[tuple[bool, Callable[..., torch.optim.Optimizer], Mapping[str, Any]], ...] = (
            (True, _Muon, muon),
            (False, AdamW, adamw),
        )
        self._parts: dict[bool, torch.optim.Optimizer] = {}
        for is_of_muon, kind, arguments in kinds:
            if own := [group for group in groups if _is_of_muon(group) == is_of_muon]:
                self._parts[is_of_muon] = kind(own, lr=0.0, **arguments)  # which adds its arguments to its groups
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make a step of each."""
        for is_of_muon, part in self._parts.items():
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if _is_of_muon(group) == is_of_muon]
            part.step()


def _is_of_muon(group: Mapping[str, Any]) -> bool:
    return MOMENTUM in group["states"]
