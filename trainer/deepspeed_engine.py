"""ZeRO by DeepSpeed (0.19): the only file that knows it."""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.zero.partitioned_param_coordinator import PartitionedParameterCoordinator
from deepspeed.utils import logger as deepspeed_logger
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

from configs import EngineSection, OptimizerSection
from model import Objective, ObjectiveOutput, Transformer
from model.kernels import use_kernels
from trainer.adamw import AdamW, decay_groups
from trainer.ema import EMA, WeightAverage
from trainer.engine import MOMENTS, DeviceBatch, ParameterState, StepResult
from trainer.precision import DTYPES, Precision
from trainer.shared_memory import SharedMemory
from trainer.stability import drift, trial
from trainer.stability.forward_clock import ForwardClock
from trainer.stability.trial import Shape
from trainer.zero_config import deepspeed_config
from trainer.zero_patches import (
    gather_by_broadcasts,
    gather_together,
    show_to_compiler,
    step_on_full_gradients,
    use_shared_memory,
    without_compiler,
)

deepspeed_logger.setLevel(logging.ERROR)


def _start_quickly() -> None:
    """Take out of DeepSpeed's start what nobody here asks for, some 2.5 s of every rank.

    It imports Muon's kernels whatever the optimizer is, and they compile themselves: TorchInductor is loaded for that.
    It hides what stage 3 does around a module from the compiler, which is never used there.
    BF16_Optimizer prints the machine's memory six times, and collects garbage before each.
    """
    with without_compiler(), contextlib.suppress(ImportError):
        import deepspeed.runtime.zero.muon.original_muon
    show_to_compiler(PartitionedParameterCoordinator)
    deepspeed.runtime.bf16_optimizer.see_memory_usage = lambda *_, **__: None


_start_quickly()


class DeepSpeedEngine:
    """ZeRO stages 0 to 3 (Rajbhandari et al., 2020) around an Objective.

    The model's weights must be in place before: DeepSpeed takes its fp32 masters from them.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        section: EngineSection,
        optimizer: OptimizerSection,
        precision: Precision,
        device: torch.device,
        world_size: int,
        ema_decay: float = 0.0,
    ) -> None:
        self.device = device
        self.keeps_ema = ema_decay > 0
        self._stage = section.zero_stage
        self._world_size = world_size
        self._precision = precision
        self._clip_norm = optimizer.clip_norm
        os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed asks for it even where nobody launched
        if device.type == "cpu":  # else it compiles a C++ op for gloo, which takes a minute and a compiler
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        use_kernels(objective, device)
        self._forward_clock = ForwardClock(device)
        self._blueprint = trial.blueprint(objective, DTYPES[precision])
        self._is_fresh = True
        if section.compile:
            objective.model.compile_layers()
        objective.to(device)
        # At a rate of 0, because stage 0 in bf16 takes a dummy step while it initialises.
        adamw = AdamW(
            decay_groups(objective, optimizer.weight_decay),
            lr=0.0,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            fused=True,
        )
        self._average = WeightAverage(adamw, ema_decay)
        if self._stage == 3:
            for layer in objective.model.layers:  # gathered as a whole, by one hook in place of some 25
                set_z3_leaf_module(layer, flag=True)
        config = deepspeed_config(section, precision=precision, clip_norm=optimizer.clip_norm, world_size=world_size)
        with without_compiler() if self._stage == 3 else contextlib.nullcontext():
            self._engine, *_ = deepspeed.initialize(
                model=objective, optimizer=adamw, config=config, dist_init_required=False
            )
        if device.type == "cpu" and world_size > 1:
            _make_collectives_fast()
        if self._stage == 3:
            gather_together(self._engine.optimizer.persistent_parameters)
        if self._stage == 0:
            self._engine.enable_backward_allreduce = world_size > 1  # it copies all gradients, to reduce and back
        if self._stage == 0 and precision != "fp32":
            step_on_full_gradients(self._engine.optimizer)
            for parameter in objective.parameters():  # else they would add up in half precision there
                parameter.grad_dtype = torch.float32
        self._set_step_count(0)

    def accumulate(self, batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        """See Engine."""
        self._engine.set_gradient_accumulation_boundary(is_last)
        with self._forward_clock:
            loss_sum, nll_sum = self._engine(batch.source, batch.target_input, batch.target_output)
        # DeepSpeed averages over the ranks; the caller's scale makes it a sum over the update's tokens.
        factor = scale * self._world_size * self._scale_left_out
        self._engine.backward(loss_sum * factor, scale_wrt_gas=False)
        return ObjectiveOutput(loss_sum.detach(), nll_sum.detach())

    def step(self, lr: float) -> StepResult:
        """See Engine."""
        self._is_fresh = False
        with self._average.update():
            result = self._step(lr)
        self._average.num_updates += result.applied
        return result

    def _step(self, lr: float) -> StepResult:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        if self._stage == 0 and self._precision == "fp32":
            return self._step_unchecked_stage()
        scale = self._scale_left_out
        self._engine.step()
        norm = self._engine.get_global_grad_norm()
        return StepResult(
            applied=bool(self._engine.was_step_applied()), grad_norm=float("nan") if norm is None else norm / scale
        )

    def _step_unchecked_stage(self) -> StepResult:
        """Stage 0 in fp32 would apply NaN and gives no norm; its gradients are whole and equal on all ranks."""
        weights = [p for p in self._engine.module.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in weights]) if weights else torch.zeros(())
        if not math.isfinite(norm.item()):
            self._engine.optimizer.zero_grad()
            return StepResult(applied=False, grad_norm=norm)
        if self._clip_norm > 0:
            torch.nn.utils.clip_grads_with_norm_(weights, self._clip_norm, norm)
        self._engine.step()
        return StepResult(applied=True, grad_norm=norm)

    def parameter_sizes(self) -> dict[str, int]:
        """See Engine."""
        return {name: math.prod(shape) for name, shape in self.parameter_shapes().items()}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """See Engine."""
        # at stage 3 a parameter itself is empty between its uses
        return {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in self._model.named_parameters()}

    def parameter_states(self) -> Iterator[ParameterState]:
        """See Engine."""
        has_stepped = self._has_stepped()
        has_ema = WeightAverage.has_begun(self._base_optimizer)
        if has_stepped:
            self._link_moments()
        for name, parameter in self._model.named_parameters():
            yield ParameterState(
                name=name,
                weight=self._full_weight(parameter),
                moments={key: self._full_state(parameter, key) for key in MOMENTS} if has_stepped else None,
                ema=self._full_state(parameter, EMA) if has_ema else None,
            )

    def load_moments(
        self,
        moments: Callable[[str], dict[str, Tensor]],
        weights: Callable[[str], Tensor],
        ema: Callable[[str], Tensor],
        *,
        num_steps: int,
    ) -> None:
        """See Engine."""
        self._create_optimizer_state()
        self._is_fresh = False
        if self.keeps_ema and not WeightAverage.has_begun(self._base_optimizer):
            WeightAverage.begin(self._base_optimizer)
        self._link_moments()
        for name, parameter in self._model.named_parameters():
            self._set_full_weight(parameter, weights(name))
            values = moments(name) | ({EMA: ema(name)} if self.keeps_ema else {})
            for key, value in values.items():
                self._set_full_state(parameter, key, value)
        self._set_step_count(num_steps)
        self._average.num_updates = num_steps

    def copy_weights_to(self, model: nn.Module) -> None:
        """See Engine."""
        targets = dict(model.named_parameters())
        has_ema = WeightAverage.has_begun(self._base_optimizer)
        if has_ema:
            self._link_moments()
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if has_ema:
                    targets[name].copy_(self._full_state(parameter, EMA))
                elif self._stage == 3:
                    with deepspeed.zero.GatheredParameters([parameter]):
                        targets[name].copy_(parameter)
                else:
                    targets[name].copy_(parameter)

    @property
    def loss_scale(self) -> float:
        """See Engine."""
        return float(self._engine.optimizer.loss_scale) if self._precision == "fp16" else 1.0

    def set_loss_scale(self, value: float) -> None:
        """See Engine."""
        if self._precision == "fp16":
            self._engine.optimizer.loss_scale = value

    def replica_digest(self) -> int | None:
        """See Engine."""
        return None if self._stage == 3 else drift.digest(self._model.parameters())

    def take_forward_seconds(self) -> float:
        """See Engine."""
        return self._forward_clock.take()

    def try_shapes(self, shapes: Sequence[Shape]) -> None:
        """See Engine."""
        assert self._is_fresh, "a step at a rate of 0 would let the moments decay"
        if self.keeps_ema and not WeightAverage.has_begun(self._base_optimizer):
            self._try_shapes([(1, 1, 1)])
            WeightAverage.begin(self._base_optimizer)  # so that its memory is taken when the shapes are tried
        self._try_shapes(shapes)

    def _try_shapes(self, shapes: Sequence[Shape]) -> None:
        for number, (rows, source, target) in enumerate(shapes):
            sides = [torch.full((rows, n), self._model.special.eos, device=self.device) for n in (source, target)]
            batch = DeviceBatch(source=sides[0], target_input=sides[1], target_output=sides[1])
            self.accumulate(batch, scale=0.0, is_last=number == len(shapes) - 1)
        self._step(0.0)
        self._set_step_count(0)
        self.take_forward_seconds()

    def would_fit(self, shapes: Sequence[Shape]) -> bool:
        """See Engine."""
        return trial.fits(self._blueprint, shapes, self.device, token=self._model.special.eos)

    def close(self) -> None:
        """See Engine."""
        parameters, masters = list(self._model.parameters()), self._base_optimizer
        self._engine.destroy()
        # Hooks keep the wrappers of stages 1 and 3 alive for good (0.19.8): what they hold is taken from them.
        if self._engine.optimizer is not masters:
            vars(self._engine.optimizer).clear()
        self._engine.optimizer = None
        masters.state.clear()
        masters.param_groups.clear()
        for parameter in parameters:
            parameter.grad, parameter.data = None, torch.empty(0, dtype=parameter.dtype)
        del self._engine

    @property
    def _scale_left_out(self) -> float:
        """Stage 0 in fp16 divides gradients by the loss scale without ever having multiplied by it (0.19.8)."""
        return self.loss_scale if self._stage == 0 else 1.0

    @property
    def _model(self) -> Transformer:
        objective: Objective = self._engine.module
        return objective.model

    def _create_optimizer_state(self) -> None:
        """One step at a rate of 0: DeepSpeed lets the moments be set only once they exist."""
        if not self._has_stepped():
            self.try_shapes([(1, 1, 1)])

    # Stage 0 keeps whole tensors and DeepSpeed's getters answer None there.

    def _master(self, parameter: nn.Parameter) -> Tensor:
        """The fp32 tensor that stage 0 updates."""
        if self._precision == "fp32":
            return parameter
        optimizer = self._engine.optimizer
        for half, full in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True):
            for low, master in zip(half, full, strict=True):
                if low is parameter:
                    return master  # type: ignore[no-any-return]
        raise AssertionError("a parameter without a master")

    def _full_weight(self, parameter: nn.Parameter) -> Tensor:
        weight = self._master(parameter) if self._stage == 0 else safe_get_full_fp32_param(parameter)
        return weight.detach().to(torch.float32)

    def _set_full_weight(self, parameter: nn.Parameter, weight: Tensor) -> None:
        if self._stage == 0:
            with torch.no_grad():
                self._master(parameter).copy_(weight)
                parameter.copy_(weight)
        elif self._stage == 3:
            safe_set_local_fp32_param(parameter, _own_partition(parameter, weight.to(self.device)))
        else:
            safe_set_full_fp32_param(parameter, weight.to(self.device))

    def _full_state(self, parameter: nn.Parameter, key: str) -> Tensor:
        """A moment, or the moving average."""
        if self._stage == 0:
            return self._base_optimizer.state[self._master(parameter)][key]  # type: ignore[no-any-return]
        state: Tensor = safe_get_full_optimizer_state(parameter, key)
        return state

    def _set_full_state(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        if self._stage == 0:
            self._base_optimizer.state[self._master(parameter)][key].copy_(value)
        elif self._stage == 3:
            safe_set_local_optimizer_state(parameter, _own_partition(parameter, value.to(self.device)), key)
        else:
            safe_set_full_optimizer_state(parameter, value.to(self.device), key)

    def _link_moments(self) -> None:
        """Let DeepSpeed's getters find the moments of every parameter group.

        Stages 1 and 2 link them after the first group's first step, when the other groups have none yet, and never
        again (0.19.8: 'exp_avg not found in optimizer state fragment').
        """
        optimizer = self._engine.optimizer
        if hasattr(optimizer, "_hp_optimizer_states_linked"):
            optimizer._hp_optimizer_states_linked = False
            optimizer._lazy_init_hp_params_optimizer_state()

    @property
    def _base_optimizer(self) -> torch.optim.Optimizer:
        """torch's AdamW itself, under whatever DeepSpeed wraps around it."""
        base: torch.optim.Optimizer = self._engine.basic_optimizer
        return base

    def _has_stepped(self) -> bool:
        """Whether moments exist; the same on all ranks."""
        return any("exp_avg" in state for state in self._base_optimizer.state.values())

    def _set_step_count(self, num_steps: int) -> None:
        """AdamW's own counter, which corrects the moments' bias."""
        for state in self._base_optimizer.state.values():
            if "step" in state:
                state["step"].fill_(num_steps)


def _make_collectives_fast() -> None:
    """Of ranks on CPUs; called by all of them."""
    backend = deepspeed.comm.comm.cdb
    backend.all_gather_function = gather_by_broadcasts
    memory = SharedMemory.of_all_ranks()
    if memory is not None:
        use_shared_memory(backend, memory)


def _own_partition(parameter: Any, whole: Tensor) -> Tensor:
    """This rank's part of what stage 3 shares out, filled up with zeros at the end.

    `safe_set_full_fp32_param` does not fill up (0.19.8): it fails where the ranks do not divide a parameter.
    """
    size = int(parameter.ds_tensor.numel())
    rank = dist.get_rank(parameter.ds_process_group)
    part = whole.flatten()[rank * size : (rank + 1) * size]
    return nn.functional.pad(part, (0, size - part.numel()))
