"""The engine of the trainer by DeepSpeed (0.19)."""

import dataclasses
import gc
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import deepspeed
import torch
from deepspeed.utils import logger as deepspeed_logger
from torch import Tensor, nn
from typing_extensions import override

from configs import EngineSection, Optimizer
from model import Objective, ObjectiveOutput, Transformer
from model.kernels import use_kernels
from model.layout import first_possible
from trainer.engines.deepspeed import patches
from trainer.engines.deepspeed.config import deepspeed_config, early_bucket_elements
from trainer.engines.deepspeed.frozen import FrozenWeights
from trainer.engines.deepspeed.stages import STAGES, prepare_for_stage_3
from trainer.engines.ema import EMA, WeightAverage
from trainer.engines.layouts import full_batch
from trainer.engines.optimizer_states import OptimizerStates, decay_groups
from trainer.engines.protocol import DeviceBatch, Engine, NotFiniteError, ParameterState, Shape, StepResult
from trainer.ranks.precision import DTYPES, Precision

deepspeed_logger.setLevel(logging.ERROR)
log = logging.getLogger(__name__)


class DeepSpeedEngine(Engine):
    """ZeRO stages 0 to 3 (Rajbhandari et al., 2020) around an Objective.

    The model must have its weights before: DeepSpeed copies its fp32 master weights from them.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        section: EngineSection,
        optimizer: Optimizer,
        precision: Precision,
        device: torch.device,
        world_size: int,
        ema_decay: float = 0.0,
        trained: Mapping[str, int] | None = None,
    ) -> None:
        """Wrap the model.

        Args:
            objective: with its weights.
            section: of the configuration.
            optimizer: of the configuration.
            precision: of the model.
            device: to train on.
            world_size: number of ranks.
            ema_decay: of the weights' moving average; 0: none.
            trained: see `Engine.trained`; None: all parameters, from the first step on.
        """
        self.device = device
        self.precision = precision
        self.keeps_ema = ema_decay > 0
        self._section, self._optimizer = section.in_precision(precision, optimizer.stages), optimizer
        self._world_size = world_size
        self._clip_norm = optimizer.clip_norm
        self._ema_decay = ema_decay
        if self._section.zero_stage != section.zero_stage:
            log.info(
                "engine.zero_stage=0 in %s: stage 1 runs, which sends as much and adds gradients up in fp32", precision
            )
        if not section.plain_deepspeed and patches.can_be_applied():
            patches.KEEP_OUT_SHARED_MEMORY_OP.apply()
            patches.ASK_TORCH_FOR_MEMORY.apply()
            patches.TIME_OUT_GROUPS.apply(timedelta(minutes=section.communication_timeout_minutes))
        else:
            self._section = dataclasses.replace(self._section, plain_deepspeed=True)
        self._wrap(objective, trained)
        self.layout_kind, self.why_padded = first_possible(self.layouts)
        self.merged_lanes = 1

    def _wrap(self, objective: Objective, trained: Mapping[str, int] | None) -> None:
        """Make the optimizer and DeepSpeed's engine; for the arguments see `__init__`."""
        section, device, precision = self._section, self.device, self.precision
        if "LOCAL_RANK" not in os.environ:  # DeepSpeed reads it even if no launcher set it, stage 3 while it trains
            os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        parameters = dict(objective.model.named_parameters())
        self.trained = dict.fromkeys(parameters, 0) if trained is None else trained
        frozen = {name: parameter for name, parameter in parameters.items() if name not in self.trained}
        self._frozen = FrozenWeights(frozen, precision, device)
        use_kernels(objective, device, section.kernels)
        self.layouts = objective.layouts(device, DTYPES[precision])
        self._forward_clock = ForwardClock(device)
        self._is_fresh = True
        if section.compile:
            objective.model.compile_layers()
        objective.to(device)
        self._optimize(objective, {parameters[name]: since for name, since in self.trained.items()}, parameters)
        self._last: StepResult | None = None
        if section.zero_stage == 3:
            prepare_for_stage_3(objective)
        config = deepspeed_config(section, precision=precision, clip_norm=self._clip_norm, world_size=self._world_size)
        self._engine, *_ = deepspeed.initialize(
            model=objective, optimizer=self._states.optimizer, config=config, dist_init_required=False
        )
        self._stage = STAGES[section.zero_stage](self._engine, section, precision, device, self._clip_norm)
        if self._optimizer.gathers:
            self._base_optimizer.places = self._stage.places([parameters[n] for n in self.trained])  # type: ignore[attr-defined]
        self._states.set_steps(0)

    def _optimize(
        self, objective: Objective, trained: Mapping[nn.Parameter, int], parameters: Mapping[str, nn.Parameter]
    ) -> None:
        """Make the optimizer, at a rate of 0, because stage 0 in bf16 takes a dummy step while it initialises."""
        optimizer, stage = self._optimizer, self._section.zero_stage
        groups = decay_groups(objective, optimizer.weight_decay, trained, early_bucket_elements(self._section))
        kept = {name: optimizer.states_of(name, tuple(p.shape)) for name, p in parameters.items() if p in trained}
        of_parameters = {parameters[name]: shapes for name, shapes in kept.items()}
        self._states = OptimizerStates(optimizer, groups, of_parameters, stage=stage, precision=self.precision)
        self.moments = {name: kept.get(name, {}) for name in parameters}
        self._average = WeightAverage(self._states.optimizer, self._ema_decay)

    @override
    def renew(self, objective: Objective, trained: Mapping[str, int]) -> None:
        self.close()
        gc.collect()
        self._wrap(objective, trained)

    @override
    def accumulate(self, batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        self._engine.set_gradient_accumulation_boundary(is_last)
        self._stage.begin_micro_batch(is_last=is_last)
        # with the caller's scale, what is averaged over the ranks is to be a sum over the update's tokens
        factor = scale * (self._world_size if self._stage.averages else 1)

        def gradient_scale() -> float:
            self._settle_loss_scale()
            return factor * self.loss_scale

        # in fp16, scaling cannot bring back gradients that underflowed to 0 before it
        is_scaled = self.precision == "fp16" and factor
        with self._forward_clock:
            arguments = batch.arguments(gradient_scale if is_scaled else 1.0)
            loss_sum, nll_sum = self._engine(*arguments, **batch.keywords())
        self._settle_loss_scale()
        self._engine.backward(loss_sum * (factor * self._stage.scale_left_out), scale_wrt_gas=False)
        self._stage.end_micro_batch()
        return ObjectiveOutput(loss_sum.detach(), nll_sum.detach())

    @override
    def step(self, lr: float) -> StepResult:
        if self._is_fresh:
            self._states.begin()
        self._is_fresh = False
        self._settle_loss_scale()
        if self._last is not None and self.keeps_ema:
            self._average.num_updates += self._last.applied
        with self._average.update():
            self._last = self._step(lr, may_be_late=True)
        return self._last

    def _settle_loss_scale(self) -> None:
        """Wait for the outcome of the last step, by which DeepSpeed updates the loss scale."""
        if self.precision == "fp16" and self._last is not None:
            _ = self._last.applied

    def _step(self, lr: float, *, may_be_late: bool = False) -> StepResult:
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        if self._states.is_checked:
            return self._stage.step(may_be_late=may_be_late)
        with self._states.first_step():
            result = self._stage.step(may_be_late=False)
        if result.applied:
            self._states.check()
        return result

    @override
    def parameter_sizes(self) -> dict[str, int]:
        return {name: math.prod(shape) for name, shape in self.parameter_shapes().items()}

    @override
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        # at stage 3 a parameter is empty while it is not in use
        return {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in self._model.named_parameters()}

    @override
    def own_weights(self) -> Iterator[tuple[str, int, Tensor]]:
        for name, parameter in self._model.named_parameters():
            if name in self.trained:
                yield name, *self._stage.own_part(parameter)

    @override
    def parameter_states(self) -> Iterator[ParameterState]:
        has_stepped = self._states.have_begun
        has_ema = WeightAverage.has_begun(self._base_optimizer)
        for name, parameter in self._model.named_parameters():
            if name not in self.trained:
                weight = self._frozen.weight(name)
                ema = weight if has_ema else None
                yield ParameterState(name=name, weight=weight, moments={} if has_stepped else None, ema=ema)
                continue
            yield ParameterState(
                name=name,
                weight=self._stage.weight(parameter),
                moments={key: self._stage.state(parameter, key) for key in self.moments[name]} if has_stepped else None,
                ema=self._stage.state(parameter, EMA) if has_ema else None,
            )

    @override
    def load_moments(
        self,
        moments: Callable[[str], dict[str, Tensor]],
        weights: Callable[[str], Tensor],
        ema: Callable[[str], Tensor],
        *,
        num_steps: int,
    ) -> None:
        self._create_optimizer_state()
        self._is_fresh = False
        if self.keeps_ema and not WeightAverage.has_begun(self._base_optimizer):
            WeightAverage.begin(self._base_optimizer)
        for name, parameter in self._model.named_parameters():
            if name not in self.trained:
                self._frozen.set(name, weights(name))
                continue
            self._stage.set_weight(parameter, weights(name))
            values = moments(name) | ({EMA: ema(name)} if self.keeps_ema else {})
            for key, value in values.items():
                self._stage.set_state(parameter, key, value)
        self._states.set_steps(num_steps)
        if not num_steps:
            self._states.begin()
        self._average.num_updates, self._last = num_steps, None

    @override
    def optimizer_numbers(self) -> dict[str, Any]:
        """With the counts by which fp16's loss scale changes: updates since the last overflow, overflows left to it."""
        self._settle_loss_scale()
        numbers, scaler = self._states.numbers(), self._stage.scaler
        if scaler is not None:
            since = scaler.cur_iter - scaler.last_overflow_iter - 1
            numbers["fp16"] = {"since": since, "hysteresis": getattr(scaler, "cur_hysteresis", 1)}
        return numbers

    @override
    def set_optimizer_numbers(self, numbers: Mapping[str, Any]) -> None:
        self._states.set_numbers(numbers)
        if (scaler := self._stage.scaler) is not None and (counts := numbers.get("fp16")) is not None:
            scaler.cur_iter, scaler.last_overflow_iter = counts["since"], -1
            scaler.cur_hysteresis = counts["hysteresis"]

    @override
    def copy_weights_to(self, model: nn.Module) -> None:
        targets = dict(model.named_parameters())
        has_ema = WeightAverage.has_begun(self._base_optimizer)
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if has_ema and name in self.trained:
                    targets[name].copy_(self._stage.state(parameter, EMA))
                else:
                    self._stage.copy(parameter, targets[name])

    @property
    @override
    def loss_scale(self) -> float:
        return 1.0 if self._stage.scaler is None else float(self._stage.scaler.cur_scale)

    @override
    def set_loss_scale(self, value: float) -> None:
        if self._stage.scaler is not None:
            self._stage.scaler.cur_scale = value

    @override
    def replica_digest(self) -> int | None:
        return self._stage.digest(self._model)

    @override
    def take_forward_seconds(self) -> float:
        return self._forward_clock.take()

    @override
    def try_shapes(self, shapes: Sequence[Shape], *, steps: bool = True) -> None:
        assert self._is_fresh, "a step at a rate of 0 would let the moments decay"
        if self.keeps_ema and not WeightAverage.has_begun(self._base_optimizer):
            self._try_shapes([(1, 1, 1)])
            WeightAverage.begin(self._base_optimizer)  # so that its memory is in use while the shapes are tried
        self._try_shapes(shapes, steps=steps)

    def _try_shapes(self, shapes: Sequence[Shape], *, steps: bool = True) -> None:
        for number, (rows, source, target) in enumerate(shapes):
            batch = full_batch(rows, source, target, self.device, self.layout_kind)
            self.accumulate(batch, scale=0.0, is_last=steps and number == len(shapes) - 1)
        if not steps:
            return
        if not self._step(0.0).applied:
            raise NotFiniteError("a pass forward and backward is not finite")
        self._states.set_steps(0)
        if self._stage.scaler is not None:
            self._stage.scaler.cur_iter = 0
        self.take_forward_seconds()

    @override
    def close(self) -> None:
        parameters, masters = list(self._model.parameters()), self._base_optimizer
        self._stage.close()
        self._engine.destroy()
        # Hooks keep the wrappers of stages 1 and 3 alive for ever (0.19.8), so their contents are removed.
        if self._engine.optimizer is not masters:
            vars(self._engine.optimizer).clear()
        self._engine.optimizer = None
        masters.state.clear()
        self._states.close()
        masters.param_groups.clear()
        for parameter in parameters:
            parameter.grad, parameter.data = None, parameter.new_empty(0)
        del self._engine, self._stage

    @property
    def _model(self) -> Transformer:
        objective: Objective = self._engine.module
        return objective.model

    def _create_optimizer_state(self) -> None:
        """Make one step at a rate of 0: DeepSpeed can set the moments only once they exist."""
        if not self._states.have_begun:
            self.try_shapes([(1, 1, 1)])

    @property
    def _base_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer inside DeepSpeed's wrappers."""
        base: torch.optim.Optimizer = self._engine.basic_optimizer
        return base


class ForwardClock:
    """`with clock: model(...)` adds the time up; on a GPU by events on its stream, so that the host never waits."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds = 0.0
        self._begin = 0.0
        self._first: torch.cuda.Event | None = None
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def __enter__(self) -> None:
        if self._device.type == "cuda":
            self._first = _recorded()
        else:
            self._begin = time.perf_counter()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._first is not None:
            self._pairs.append((self._first, _recorded()))
        else:
            self._seconds += time.perf_counter() - self._begin

    def take(self) -> float:
        """Seconds since the last call; what the GPU has not finished is counted at the next."""
        while self._pairs and self._pairs[0][1].query():  # type: ignore[no-untyped-call]
            first, last = self._pairs.popleft()
            self._seconds += first.elapsed_time(last) / 1000
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
