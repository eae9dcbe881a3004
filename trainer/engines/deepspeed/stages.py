"""Where each ZeRO stage keeps weights, master weights and moments, and how to get at them: one class per layout."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
    set_z3_leaf_module,
)
from torch import Tensor, nn
from typing_extensions import override

from configs import EngineSection
from model import Objective
from trainer.engines import replicas
from trainer.engines.deepspeed.config import early_bucket_elements
from trainer.engines.deepspeed.late import Decision
from trainer.engines.deepspeed.patches import LINK_MOMENTS
from trainer.engines.deepspeed.reduction import REDUCE_IN_BACKWARD, Reduction, give_partitions
from trainer.engines.deepspeed.steps import (
    MEASURE_ONCE,
    MEASURE_SHARDS_ONCE,
    STEP_ON_FLAT_GRADIENTS,
    STEP_ON_FULL_GRADIENTS,
    GradientSum,
)
from trainer.engines.muon import Place
from trainer.engines.protocol import StepResult
from trainer.ranks.precision import Precision


class Stage:
    """What the engine needs of a stage. A parameter has moments only after the first step.

    Args:
        section: of the configuration.
        precision: of the model.
        device: of the model.
    """

    has_replicas = True
    """Whether every rank holds all weights."""

    def __init__(self, section: EngineSection, precision: Precision, device: torch.device) -> None:
        self.section = section
        self.precision = precision
        self.device = device
        self.engine: Any = None
        self.decision: Decision
        """On its next steps; made by `adapt`."""

    def prepare(self, objective: Objective) -> None:
        """Prepare the model before DeepSpeed wraps it."""

    def adapt(self, engine: Any, world_size: int) -> None:
        """Patch DeepSpeed's engine as this stage needs."""
        self.engine = engine
        self.decision = Decision(engine.basic_optimizer, self.device)

    def begin_micro_batch(self, *, is_last: bool) -> None:
        """To be called before each forward pass; the last is the update's."""

    def end_micro_batch(self) -> None:
        """To be called after each backward pass."""

    def step(self, clip_norm: float, *, may_be_late: bool) -> StepResult:
        """`Engine.step` with the learning rate already set.

        Args:
            clip_norm: of the gradients.
            may_be_late: whether the result may be known later.
        """
        if may_be_late and self.decision.can_be_late:
            scaler = self.engine.optimizer if self.precision == "fp16" else None
            with self.decision.late(clip_norm, scaler):
                self._step_late()
            return self.decision.result()
        return self._step_at_once(clip_norm)

    def _step_late(self) -> None:
        """Step by `self.decision`, which is given the norm within."""
        self.engine.step()

    def _step_at_once(self, clip_norm: float) -> StepResult:
        """Step once the norm has been read. DeepSpeed knows how to clip."""
        scale = self.scale_left_out
        self.engine.step()
        norm = self.engine.get_global_grad_norm()
        return StepResult(
            applied=bool(self.engine.was_step_applied()), grad_norm=float("nan") if norm is None else norm / scale
        )

    @property
    def scale_left_out(self) -> float:
        """A factor for gradients that makes up for DeepSpeed's dividing by a scale it never multiplied by."""
        return 1.0

    def weight(self, parameter: nn.Parameter) -> Tensor:
        """A whole parameter in fp32."""
        return safe_get_full_fp32_param(parameter).detach().to(torch.float32)  # type: ignore[no-any-return]

    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor] | None:
        """The fp32 elements of a parameter that this rank updates: the place of the first, and a view of them."""
        raise NotImplementedError

    def flat_tensors(self) -> Iterator[tuple[Tensor, Sequence[nn.Parameter]]]:
        """What the optimizer steps on in place of parameters, each with the parameters whose pieces it may have."""
        return iter(())

    def places(self) -> dict[Tensor, list[Place]]:
        """Where each of these tensors has elements of which parameter."""
        return {flat: [self._place(p, flat) for p in parameters] for flat, parameters in self.flat_tensors()}

    def _place(self, parameter: nn.Parameter, flat: Tensor) -> Place:
        shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
        part = self.own_part(parameter)
        if part is None:
            return Place(shape=shape, begin=0, offset=0, size=0)
        begin, values = part
        offset = int(values.storage_offset() - flat.storage_offset())
        return Place(shape=shape, begin=begin, offset=offset, size=values.numel())

    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        """Set a whole parameter and its master weights."""
        safe_set_full_fp32_param(parameter, weight.to(self.device))

    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        """A whole moment of the optimizer, or the whole moving average."""
        whole: Tensor = safe_get_full_optimizer_state(parameter, key)
        return whole

    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        """Set a whole moment."""
        safe_set_full_optimizer_state(parameter, value.to(self.device), key)

    def link_moments(self) -> None:
        """Make the moments of every parameter group accessible."""

    def copy(self, parameter: nn.Parameter, target: Tensor) -> None:
        """Copy a parameter in the model's precision."""
        target.copy_(parameter)

    def close(self) -> None:
        """Release what its hooks hold."""

    def digest(self, module: nn.Module) -> int | None:
        """A hash of the weights where every rank has all of them; else None. See `Engine.replica_digest`."""
        return replicas.digest(module.parameters()) if self.has_replicas else None


class Replicated(Stage):
    """Stage 0: every rank holds everything, as plain tensors; DeepSpeed's getters answer None there."""

    _sums: GradientSum | None = None

    def adapt(self, engine: Any, world_size: int) -> None:
        """Skip the reduction on a single rank: it would copy all gradients there and back."""
        super().adapt(engine, world_size)
        engine.enable_backward_allreduce = world_size > 1 and self.precision == "fp32"
        if self.precision != "fp32":  # otherwise they would be summed in half precision
            parameters = [p for group in engine.optimizer.fp16_groups for p in group]
            self._sums = GradientSum(parameters, factor=1 / world_size)
            STEP_ON_FULL_GRADIENTS.apply(engine.optimizer, self._sums, self.decision)

    @override
    def end_micro_batch(self) -> None:
        if self._sums is not None:
            self._sums.add()

    @override
    def _step_late(self) -> None:
        if self.precision == "fp32":
            self.decision.take(self._norm()[1].to(self.device))
        super()._step_late()

    @override
    def _step_at_once(self, clip_norm: float) -> StepResult:
        if self.precision != "fp32":
            return super()._step_at_once(clip_norm)
        weights, norm = self._norm()
        if not math.isfinite(norm.item()):
            self.engine.optimizer.zero_grad()
            return StepResult(applied=False, grad_norm=norm)
        if clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(weights, clip_norm, norm)
        self.engine.step()
        return StepResult(applied=True, grad_norm=norm)

    def _norm(self) -> tuple[list[nn.Parameter], Tensor]:
        """Weights with gradients, and their norm, in fp32: DeepSpeed would apply NaN and give none.

        Gradients are whole and equal on all ranks.
        """
        weights = [p for p in self.engine.module.parameters() if p.grad is not None]
        return weights, torch.nn.utils.get_total_norm([p.grad for p in weights]) if weights else torch.zeros(())

    @property
    def scale_left_out(self) -> float:
        """In fp16 DeepSpeed divides gradients by the loss scale without ever having multiplied by it (0.19.8)."""
        return float(self.engine.optimizer.loss_scale) if self.precision == "fp16" else 1.0

    @override
    def weight(self, parameter: nn.Parameter) -> Tensor:
        return self._master(parameter).detach().to(torch.float32)

    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor] | None:
        """Every rank updates all: each has one part of it for its own."""
        flat, ranks = self._master(parameter).detach().flatten(), dist.get_world_size()
        begin, end = (flat.numel() * rank // ranks for rank in (dist.get_rank(), dist.get_rank() + 1))
        return begin, flat[begin:end]

    @override
    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        with torch.no_grad():
            self._master(parameter).copy_(weight)
            parameter.copy_(weight)

    @override
    def state(self, parameter: nn.Parameter, key: str) -> Tensor:
        return self.engine.basic_optimizer.state[self._master(parameter)][key]  # type: ignore[no-any-return]

    @override
    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        self.engine.basic_optimizer.state[self._master(parameter)][key].copy_(value)

    def _master(self, parameter: nn.Parameter) -> Tensor:
        """The fp32 tensor that the optimizer updates."""
        if self.precision == "fp32":
            return parameter
        optimizer = self.engine.optimizer
        for half, full in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
            for low, master in zip(half, full, strict=True):
                if low is parameter:
                    return master  # type: ignore[no-any-return]
        raise AssertionError("a parameter without a master")


class Partitioned(Stage):
    """Stages 1 and 2: every rank holds the weights and its part of masters and moments (at 2, of gradients)."""

    _reduction: Reduction | None = None

    @override
    def adapt(self, engine: Any, world_size: int) -> None:
        super().adapt(engine, world_size)
        if self.section.reduces_in_buckets:
            self._reduction = REDUCE_IN_BACKWARD.apply(engine, most_elements=early_bucket_elements(self.section))
        if isinstance(engine.optimizer, BF16_Optimizer):
            engine.enable_backward_allreduce = False
            STEP_ON_FLAT_GRADIENTS.apply(engine.optimizer, self.decision, is_reduced=self._reduction is not None)
        else:
            # offloaded weights step on the host, and without its norm DeepSpeed looks at each gradient
            self.decision.can_be_late &= engine.optimizer.compute_grad_norm and not engine.optimizer.cpu_offload
            MEASURE_ONCE.apply(engine.optimizer, self.decision)

    @override
    def begin_micro_batch(self, *, is_last: bool) -> None:
        if self._reduction is not None:
            self._reduction.begin(is_last=is_last)

    @override
    def end_micro_batch(self) -> None:
        if self._reduction is not None:
            self._reduction.end()

    @override
    def step(self, clip_norm: float, *, may_be_late: bool) -> StepResult:
        if self._reduction is not None:
            give_partitions(self.engine.optimizer, self._reduction.take())
        return super().step(clip_norm, may_be_late=may_be_late)

    @override
    def close(self) -> None:
        if self._reduction is not None:
            self._reduction.close()

    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor] | None:
        """None where this rank's part of the flat masters has nothing of it."""
        mapping: Any = getattr(parameter, "_hp_mapping", None)
        return None if mapping is None else (mapping.lp_fragment_address.start, mapping.hp_fragment.detach())

    @override
    def flat_tensors(self) -> Iterator[tuple[Tensor, Sequence[nn.Parameter]]]:
        optimizer = self.engine.optimizer
        if isinstance(optimizer, BF16_Optimizer):
            return zip(optimizer.fp32_groups_flat_partition, optimizer.bf16_groups, strict=True)
        return zip(optimizer.single_partition_of_fp32_groups, optimizer.bit16_groups, strict=True)

    @override
    def link_moments(self) -> None:
        LINK_MOMENTS.apply(self.engine.optimizer)


class Sharded(Stage):
    """Stage 3: every rank holds its part of everything."""

    has_replicas = False

    def prepare(self, objective: Objective) -> None:
        """Gather each layer as a whole, by one hook instead of about 25.

        DeepSpeed releases a layer once its inputs have their gradients. Above what is frozen some need none, and a
        layer would go too early (0.19.8: a decoder's, with the gradient of the encoder's states), or never.
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

    @override
    def adapt(self, engine: Any, world_size: int) -> None:
        super().adapt(engine, world_size)
        self.decision.can_be_late &= not engine.optimizer.offload_optimizer
        MEASURE_SHARDS_ONCE.apply(engine.optimizer, self.decision)

    def own_part(self, parameter: nn.Parameter) -> tuple[int, Tensor] | None:
        """Not by DeepSpeed's getter, with which the host waits for the device."""
        optimizer, sharded = self.engine.optimizer, cast(Any, parameter)
        group, begin, size = optimizer.grad_position[optimizer.get_param_id(parameter)]
        place = dist.get_rank(sharded.ds_process_group) * int(sharded.ds_tensor.numel())
        size = max(0, min(size, sharded.ds_numel - place))  # at the end there is padding
        return place, optimizer.fp32_partitioned_groups_flat[group].detach().narrow(0, begin, size)

    @override
    def flat_tensors(self) -> Iterator[tuple[Tensor, Sequence[nn.Parameter]]]:
        optimizer = self.engine.optimizer
        return zip(optimizer.fp32_partitioned_groups_flat, optimizer.fp16_groups, strict=True)

    @override
    def set_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        safe_set_local_fp32_param(parameter, _own_partition(parameter, weight.to(self.device)))

    @override
    def set_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        safe_set_local_optimizer_state(parameter, _own_partition(parameter, value.to(self.device)), key)

    @override
    def copy(self, parameter: nn.Parameter, target: Tensor) -> None:
        with deepspeed.zero.GatheredParameters([parameter]):
            target.copy_(parameter)


STAGES: dict[int, type[Stage]] = {0: Replicated, 1: Partitioned, 2: Partitioned, 3: Sharded}


def stage_of(section: EngineSection, precision: Precision, device: torch.device) -> Stage:
    """The layout of the section's ZeRO stage."""
    return STAGES[section.zero_stage](section, precision, device)


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
