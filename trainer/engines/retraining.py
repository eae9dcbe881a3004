"""Going on with other parameters than those that were trained, between two updates."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from model import Objective
from trainer.engines import Engine


def retrain(engine: Engine, objective: Objective, trained: Mapping[str, int], *, num_steps: int) -> None:
    """Train other parameters from now on. Weights go on to the bit, and so do moments and averages of what is trained
    before and after. What begins to be trained has zero moments.

    Called by all ranks alike, between two updates. Each keeps its part of all on the host meanwhile.

    Args:
        engine: whose last update is settled.
        objective: a new one.
        trained: see `Engine.trained`.
        num_steps: of the optimizer.
    """
    device, shapes, before = engine.device, engine.parameter_shapes(), engine.moments
    fp16 = engine.fp16_state()
    owners = {name: number % dist.get_world_size() for number, name in enumerate(shapes)}
    kept: dict[str, dict[str, Tensor]] = {}
    has_moments = has_ema = False
    for state in engine.parameter_states():
        has_moments, has_ema = has_moments or bool(state.moments), state.ema is not None
        if owners[state.name] == dist.get_rank():
            tensors = {"weight": state.weight, **({} if state.ema is None else {"ema": state.ema})}
            tensors |= {f"moments/{key}": tensor for key, tensor in (state.moments or {}).items()}
            kept[state.name] = {key: tensor.to("cpu", torch.float32, copy=True) for key, tensor in tensors.items()}

    def shared(name: str, key: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of the rank that has it, on all."""
        is_own = owners[name] == dist.get_rank()
        tensor = kept[name][key].to(device) if is_own else torch.empty(shape, device=device)
        dist.broadcast(tensor, src=owners[name])
        return tensor

    def weight(name: str) -> Tensor:
        return shared(name, "weight", shapes[name])

    def moments(name: str) -> dict[str, Tensor]:
        return {
            key: shared(name, f"moments/{key}", shape) if has_moments and key in before[name] else torch.zeros(shape)
            for key, shape in engine.moments[name].items()
        }

    def average(name: str) -> Tensor:
        return shared(name, "ema", shapes[name]) if has_ema else weight(name)

    with torch.no_grad():
        for name, parameter in objective.model.named_parameters():
            parameter.copy_(weight(name))  # the first pass computes with what DeepSpeed finds there
    engine.renew(objective, trained)
    engine.load_moments(moments, weight, average, num_steps=num_steps)
    engine.set_fp16_state(fp16)
