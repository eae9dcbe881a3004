"""What is not trained: its exact weights, which no optimizer has.

DeepSpeed keeps fp32 masters of what it steps on alone. A frozen parameter stays in the model's precision; in half
precision that is rounded, and a checkpoint is to hold the weights that the run began with.
"""

from collections.abc import Callable, Mapping
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainer.ranks.precision import Precision


class FrozenWeights:
    """The fp32 weights of a model's frozen parameters; in half precision each rank has its part on the host."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], precision: Precision, device: torch.device) -> None:
        """Turn gradients off, and take the weights.

        Args:
            parameters: by name, with their exact weights; DeepSpeed does not have them yet.
            precision: of the model in training.
            device: of the model in training.
        """
        self._parameters, self._device = dict(parameters), device
        self._parts: dict[str, Tensor] = {}
        self._is_exact = precision == "fp32"
        for name, parameter in self._parameters.items():
            parameter.requires_grad = False
            if not self._is_exact:
                self._parts[name] = _part(parameter.detach())

    def weight(self, name: str) -> Tensor:
        """A whole weight in fp32, on the device. Called by all ranks alike."""
        parameter = self._parameters[name]
        if self._is_exact:
            with _gathered(parameter):
                return parameter.detach().clone()
        part, shape = self._parts[name].to(self._device), getattr(parameter, "ds_shape", parameter.shape)
        whole = part.new_empty(dist.get_world_size() * len(part))
        dist.all_gather_into_tensor(whole, part)
        return whole[: shape.numel()].view(shape)


def _part(weight: Tensor) -> Tensor:
    """This rank's elements of a weight, in a row, in fp32 on the host; filled up so that all ranks have as many."""
    flat, ranks = weight.flatten(), dist.get_world_size()
    size = -(-flat.numel() // ranks)
    own = flat[dist.get_rank() * size :][:size]
    return nn.functional.pad(own.to("cpu", torch.float32, copy=True), (0, size - own.numel()))


def _gathered(parameter: nn.Parameter) -> Any:
    """A context in which a parameter is whole at stage 3; nothing at others."""
    make: Callable[..., Any] = deepspeed.zero.GatheredParameters
    return make([parameter], enabled=hasattr(parameter, "ds_id"))
