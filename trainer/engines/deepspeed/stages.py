"""Where each ZeRO stage keeps weights, master weights and moments, and how to get at them: one class per layout."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_get_local_fp32_param,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
    set_z3_leaf_module,
)
from torch import Tensor, nn
from typing_extensions import override

from configs import EngineSection
from model import Objective
from trainer.engines.batches import HostCopy, StepResult
from trainer.engines.deepspeed.patches import reduce_in_backward
from trainer.engines.deepspeed.reduction import Reduction
from trainer.engines.muon import Place
from trainer.ranks.precision import Precision


class Stage:
    """What the engine needs of a stage. A parameter has moments only after the first step.

    Args:
        engine: DeepSpeed's.
        section: of the configuration.
        precision: of the model.
        device: of the model.
        clip_norm: of gradients; 0 clips none.
    """

    averages = True
    """Whether gradients are averaged over the ranks, and not added."""

    def __init__(
        self, engine: Any, section: EngineSection, precision: Precision, device: torch.device, clip_norm: float
    ) -> None:
        self.engine, self.optimizer, self.base = engine, engine.optimizer, engine.basic_optimizer
        self.precision, self.device, self.clip_norm = precision, device, clip_norm
        self.can_be_late = can_be_late(self.base, device) and not section.offload_optimizer
        """Whether the device can decide on a step."""

    def begin_micro_batch(self, *, is_last: bool) -> None:
        """To be called before each forward pass; the last is the update's."""

    def end_micro_batch(self) -> None:
        """To be called after each backward pass."""

    def step(self, *, may_be_late: bool) -> StepResult:
        """`Engine.step` with the learning rate already set: by DeepSpeed, which clips, and skips what is not finite.

        Args:
            may_be_late: whether the result may be known later.
        """
        scale = self.scale_left_out
        self.engine.step()
        norm = self.engine.get_global_grad_norm()
        return StepResult(
            applied=bool(self.engine.was_step_applied()), grad_norm=math.nan if norm is None else norm / scale
        )

    def _decide(
        self, norm: Tensor, gradients: Sequence[Tensor], update: Callable[[], None], *, may_be_late: bool
    ) -> StepResult:
        """Clip gradients and make the update, or neither; where it may be late, the device does.

        Args:
            norm: of the gradients times the loss scale, ().
            gradients: that the update is made of.
            update: makes it.
            may_be_late: see `step`.
        """
        scale = float(self.scaler.cur_scale) if self.scaler is not None else 1.0
        if may_be_late and self.can_be_late:
            exact = norm.to(torch.float32) / scale
            copy = HostCopy(exact)
            with decided_by(exact, self.base, clip_norm=self.clip_norm, scale=scale):
                update()
            return StepResult(grad_norm=lambda: self._settled(copy.read()))
        grad_norm = self._settled(norm / scale)
        if is_applied := math.isfinite(grad_norm):
            factor = (min(1.0, self.clip_norm / (float(grad_norm) + 1e-6)) if self.clip_norm else 1.0) / scale
            if factor != 1:
                torch._foreach_mul_(list(gradients), factor)
            update()
        return StepResult(applied=is_applied, grad_norm=grad_norm)

    def _settled(self, norm: Tensor) -> Tensor:
        """Read the norm, by which the loss scale changes."""
        host_norm = norm.cpu()
        if self.scaler is not None:
            self.scaler.update_scale(not math.isfinite(host_norm))
        return host_norm

    @property
    def scaler(self) -> Any:
        """What has the loss scale of fp16 and counts for it; None in other precisions."""
        if self.precision != "fp16":
            return None
        return getattr(self.optimizer, "loss_scaler", None) or self.optimizer.loss_scale_config

    @property
    def scale_left_out(self) -> float:
        """A factor for gradients that makes up for DeepSpeed's dividing by a scale it never multiplied by."""
        return 1.0

    def weight(self, parameter: nn.Parameter) -> Tensor:
        """A whole parameter in fp32."""
        return safe_get_full_fp32_param(parameter).detach().to(torch.float32)  # type: ignore[no-any-return]

    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor]:
        """The fp32 elements of a parameter that this rank updates: the place of the first, and a view."""
        raise NotImplementedError

    def places(self, parameters: Sequence[Any]) -> dict[int, list[Place]]:
        """Which elements of these parameters the tensors have that the optimizer steps on; by their storages."""
        places: dict[int, list[Place]] = {}
        for parameter in parameters:
            begin, values = self.own_part(parameter)
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            place = Place(shape=shape, begin=begin, offset=int(values.storage_offset()), size=values.numel())
            places.setdefault(values.untyped_storage().data_ptr(), []).append(place)
        return places

    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        """Set a whole parameter and its master weights."""
        raise NotImplementedError

    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        """A whole moment of the optimizer, or the whole moving average."""
        raise NotImplementedError

    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        """Set a whole moment."""
        raise NotImplementedError

    def copy(self, parameter: nn.Parameter, target: Tensor) -> None:
        """Copy a parameter in the model's precision."""
        target.copy_(parameter)

    def close(self) -> None:
        """Release what its hooks hold."""


def can_be_late(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:
    """Whether the device can decide. On a CPU the norm is there as soon as it is computed."""
    return device.type != "cpu" and bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@contextmanager
def decided_by(norm: Tensor, optimizer: Any, *, clip_norm: float, scale: float) -> Iterator[None]:
    """The optimizer's step within is decided by the device: not finite, the norm skips it, and large, it is clipped.

    torch's fused optimizers divide gradients by a tensor `grad_scale`, and change nothing where a tensor `found_inf` is
    1, their own count of steps included; `torch.amp.GradScaler` tells them so. The host reads the norm an update later.

    Args:
        norm: of the gradients without their scale, (), on the device, in fp32.
        optimizer: that makes the step.
        clip_norm: gradients of a larger norm are scaled down to it; 0 clips none.
        scale: that gradients are multiplied by.
    """
    optimizer.found_inf = norm.mul(0.0).ne_(0.0)  # 0 times what is not finite is NaN
    if clip_norm > 0:
        optimizer.grad_scale = norm.add(1e-6).div_(clip_norm).clamp_(min=1.0).mul_(scale)
    elif scale != 1:
        optimizer.grad_scale = torch.full_like(norm, scale)
    try:
        yield
    finally:
        for name in ("grad_scale", "found_inf"):
            vars(optimizer).pop(name, None)


class Replicated(Stage):
    """Stage 0: every rank holds everything, as plain tensors; DeepSpeed's getters answer None there.

    In half precision DeepSpeed sums gradients in it too; stage 1 runs then, except for optimizers that work at 0 alone.
    """

    def __init__(self, engine: Any, section: EngineSection, *others: Any) -> None:
        """Skip the reduction on a single rank: it would copy all gradients there and back."""
        super().__init__(engine, section, *others)
        if dist.get_world_size() == 1 and not section.plain_deepspeed:
            engine.enable_backward_allreduce = False

    @override
    def step(self, *, may_be_late: bool) -> StepResult:
        """In fp32 DeepSpeed would apply NaN, and gives no norm. Gradients are whole and equal on all ranks."""
        if self.precision != "fp32":
            return super().step(may_be_late=may_be_late)
        gradients = [p.grad for p in self.engine.module.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients) if gradients else torch.zeros((), device=self.device)
        result = self._decide(norm, gradients, self.engine.step, may_be_late=may_be_late)
        self.optimizer.zero_grad()
        return result

    @property
    @override
    def scale_left_out(self) -> float:
        """In fp16 DeepSpeed divides gradients by the loss scale without ever having multiplied by it (0.19.8)."""
        return 1.0 if self.scaler is None else float(self.scaler.cur_scale)

    @override
    def weight(self, parameter: nn.Parameter) -> Tensor:
        return self.master(parameter).detach().to(torch.float32)

    @override
    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor]:
        """Every rank updates all weights; one part of them counts as its own."""
        flat, ranks = self.master(parameter).detach().flatten(), dist.get_world_size()
        begin, end = (flat.numel() * rank // ranks for rank in (dist.get_rank(), dist.get_rank() + 1))
        return begin, flat[begin:end]

    @override
    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        with torch.no_grad():
            self.master(parameter).copy_(weight)
            parameter.copy_(weight)

    @override
    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        return self.base.state[self.master(parameter)][key]  # type: ignore[no-any-return]

    @override
    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        self.base.state[self.master(parameter)][key].copy_(value)

    def master(self, parameter: nn.Parameter) -> Tensor:
        """The fp32 tensor that the optimizer updates."""
        if self.precision == "fp32":
            return parameter
        pairs = zip(self.optimizer.fp16_groups, self.optimizer.fp32_groups, strict=True)
        return next(m for low, masters in pairs for p, m in zip(low, masters, strict=True) if p is parameter)  # type: ignore[no-any-return]


class Partitioned(Stage):
    """Stages 1 and 2: every rank holds the weights and its part of masters and moments (at 2, of gradients).

    A group of parameters is one flat tensor, and each rank's part of it one flat master.
    """

    _reduction: Reduction | None = None

    def __init__(self, engine: Any, section: EngineSection, *others: Any) -> None:
        super().__init__(engine, section, *others)
        optimizer, self._is_offloaded = self.optimizer, section.offload_optimizer
        if hasattr(optimizer, "single_partition_of_fp32_groups"):
            self._masters, groups = optimizer.single_partition_of_fp32_groups, optimizer.bit16_groups
        else:  # DeepSpeed's own stage 1 in bf16
            self._masters, groups = optimizer.fp32_groups_flat_partition, optimizer.bf16_groups
        self._place_of: dict[nn.Parameter, tuple[int, int]] = {}
        for number, group in enumerate(groups):
            begin = 0
            for parameter in group:
                self._place_of[parameter] = number, begin
                begin += parameter.numel()
        if section.reduces_in_buckets:
            is_half = self.precision != "fp32"
            each = section.zero_stage == 2
            self._reduction = reduce_in_backward(engine, each=each, in_place=is_half and not each)
            self.averages = False

    @override
    def begin_micro_batch(self, *, is_last: bool) -> None:
        if self._reduction is not None:
            self._reduction.begin(is_last=is_last)

    @override
    def end_micro_batch(self) -> None:
        if self._reduction is not None:
            self._reduction.end()

    @override
    def step(self, *, may_be_late: bool) -> StepResult:
        if self._reduction is None:
            result = super().step(may_be_late=may_be_late)
            if self._is_offloaded and not result.applied:
                self.optimizer.averaged_gradients.clear()  # else DeepSpeed would keep adding to them (0.19.8)
            return result
        sums = self._reduction.take()
        gradients = [torch.empty_like(one, device="cpu") for one in sums] if self._is_offloaded else sums
        for gradient, one in zip(gradients, sums, strict=True):
            gradient.copy_(one, non_blocking=True)  # waiting for the norm waits for this too
        squares = torch.stack(torch._foreach_norm(sums, 2, dtype=torch.float64)).square().sum()
        dist.all_reduce(squares)
        return self._decide(squares.sqrt_(), gradients, lambda: self._update(gradients), may_be_late=may_be_late)

    def _update(self, gradients: Sequence[Tensor]) -> None:
        for master, gradient in zip(self._masters, gradients, strict=True):
            master.grad = gradient
        self.base.step()
        for master in self._masters:
            master.grad = None
        self.optimizer.update_lp_params()

    @override
    def close(self) -> None:
        if self._reduction is not None:
            self._reduction.close()

    def _part(self, parameter: nn.Parameter, flat: Tensor) -> tuple[int, Tensor]:
        """What a tensor of the size of a master has of a parameter: the place of the first element, and a view."""
        _, begin = self._place_of[parameter]
        first = dist.get_rank() * len(flat)
        start, end = (min(max(place - first, 0), len(flat)) for place in (begin, begin + parameter.numel()))
        return max(first - begin, 0), flat.detach()[start:end]

    def _whole(self, parameter: nn.Parameter, flat: Tensor) -> Tensor:
        begin, part = self._part(parameter, flat)
        whole = torch.zeros(parameter.numel(), dtype=torch.float32, device=self.device)
        if part.numel():
            whole[begin : begin + len(part)] = part
        dist.all_reduce(whole)
        return whole.view(parameter.shape)

    def _set(self, parameter: nn.Parameter, flat: Tensor, value: Tensor) -> None:
        begin, part = self._part(parameter, flat)
        if part.numel():
            part.copy_(value.flatten()[begin : begin + len(part)])

    def _master(self, parameter: nn.Parameter) -> Tensor:
        return self._masters[self._place_of[parameter][0]]  # type: ignore[no-any-return]

    @override
    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor]:
        return self._part(parameter, self._master(parameter))

    @override
    def weight(self, parameter: nn.Parameter) -> Tensor:
        return self._whole(parameter, self._master(parameter))

    @override
    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        with torch.no_grad():
            parameter.copy_(weight)
        self._set(parameter, self._master(parameter), weight)

    @override
    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        return self._whole(parameter, self.base.state[self._master(parameter)][key])

    @override
    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        self._set(parameter, self.base.state[self._master(parameter)][key], value)


class Sharded(Stage):
    """Stage 3: every rank holds its part of everything."""

    @override
    def own_part(self, parameter: Any) -> tuple[int, Tensor]:
        begin = dist.get_rank(parameter.ds_process_group) * int(parameter.ds_tensor.numel())
        size = max(0, min(parameter.ds_tensor.numel(), parameter.ds_numel - begin))  # at the end there is padding
        return begin, safe_get_local_fp32_param(parameter).detach()[:size]

    @override
    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        safe_set_local_fp32_param(parameter, _own_partition(parameter, weight.to(self.device)))

    @override
    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        return safe_get_full_optimizer_state(parameter, key)  # type: ignore[no-any-return]

    @override
    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        safe_set_local_optimizer_state(parameter, _own_partition(parameter, value.to(self.device)), key)

    @override
    def copy(self, parameter: nn.Parameter, target: Tensor) -> None:
        with deepspeed.zero.GatheredParameters([parameter]):
            target.copy_(parameter)


STAGES: dict[int, type[Stage]] = {0: Replicated, 1: Partitioned, 2: Partitioned, 3: Sharded}


def prepare_for_stage_3(objective: Objective) -> None:
    """Gather each layer as a whole, by one hook instead of about 25; before DeepSpeed wraps the model.

    DeepSpeed releases a layer once its inputs have their gradients. Above what is frozen some need none, and a layer
    would go too early (0.19.8: a decoder's, with the gradient of the encoder's states), or never.
    """
    model = objective.model
    for layer in model.layers:
        set_z3_leaf_module(layer, flag=True)
    if all(parameter.requires_grad for parameter in model.parameters()):
        return
    for stack in (model.encoder, model.decoder):
        trained = (layer for layer in stack.layers if any(p.requires_grad for p in layer.parameters()))
        if (first := next(trained, None)) is not None:
            first.register_forward_pre_hook(_ask_for_gradient)


def _ask_for_gradient(_: nn.Module, inputs: tuple[Any, ...]) -> None:
    if torch.is_grad_enabled() and not inputs[0].requires_grad:
        inputs[0].requires_grad_()


def _own_partition(parameter: Any, whole: Tensor) -> Tensor:
    """This rank's partition at stage 3, padded with zeros at the end.

    `safe_set_full_fp32_param` does not pad (0.19.8): it fails if a parameter does not divide evenly over the ranks.
    """
    size = int(parameter.ds_tensor.numel())
    rank = dist.get_rank(parameter.ds_process_group)
    part = whole.flatten()[rank * size : (rank + 1) * size]
    return nn.functional.pad(part, (0, size - part.numel()))
