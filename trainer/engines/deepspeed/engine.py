"""The engine of the trainer by DeepSpeed (0.19)."""

import dataclasses
import gc
import logging
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import timedelta

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils import logger as deepspeed_logger
from torch import Tensor, nn

from configs import EngineSection, Optimizer
from configs.process.environment import restored_environment
from model import Objective, ObjectiveOutput, Transformer
from model.kernels import use_kernels
from model.layout import LayoutKind, first_possible
from trainer.engines.batches import DeviceBatch, NotFiniteError, ParameterState, Shape, StepResult
from trainer.engines.deepspeed import patches
from trainer.engines.deepspeed.config import deepspeed_config, early_bucket_elements
from trainer.engines.deepspeed.frozen import FrozenWeights
from trainer.engines.deepspeed.stages import STAGES, prepare_for_stage_3
from trainer.engines.ema import EMA, WeightAverage
from trainer.engines.layouts import full_batch
from trainer.engines.optimizer_states import OptimizerStates, decay_groups
from trainer.ranks.precision import DTYPES, Precision

deepspeed_logger.setLevel(logging.ERROR)
log = logging.getLogger(__name__)


class DeepSpeedEngine:
    """ZeRO stages 0 to 3 (Rajbhandari et al., 2020) around an Objective. All ranks call every method alike.

    The model must have its weights before: DeepSpeed copies its fp32 master weights from them.
    """

    layouts: Mapping[LayoutKind, str]
    """What `Objective.layouts` says of this rank's device."""
    layout_kind: LayoutKind
    """Layout of the batches that it is to be given: the first possible until `settle_attention` says otherwise."""
    moments: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By each parameter's name: shapes of the optimizer's states, by their names; none where it is frozen."""
    trained: Collection[str]
    """Names of the parameters that are trained. The others are frozen: they have no moments, and their average is
    themselves."""

    def __init__(
        self,
        objective: Objective,
        *,
        section: EngineSection,
        optimizer: Optimizer,
        precision: Precision,
        device: torch.device,
        ema_decay: float = 0.0,
        trained: Collection[str] | None = None,
    ) -> None:
        """Wrap the model.

        Args:
            objective: with its weights.
            section: of the configuration.
            optimizer: of the configuration.
            precision: of the model.
            device: to train on.
            ema_decay: of the weights' moving average; 0: none.
            trained: see the attribute; None: all parameters.
        """
        self.device = device
        self.precision = precision
        self.keeps_ema = ema_decay > 0
        """Whether it keeps an exponential moving average of the weights."""
        self._section, self._optimizer = section.in_precision(precision, optimizer.stages), optimizer
        self._ema_decay = ema_decay
        if self._section.zero_stage != section.zero_stage:
            log.info(
                "engine.zero_stage=0 in %s: stage 1 runs, which sends as much and adds gradients up in fp32", precision
            )
        if not section.plain_deepspeed and patches.can_be_applied():
            patches.keep_out_shared_memory_op()
            patches.ask_torch_for_memory()
            patches.time_out_groups(timedelta(minutes=section.communication_timeout_minutes))
        else:
            self._section = dataclasses.replace(self._section, plain_deepspeed=True)
        self.trained = [name for name, _ in objective.model.named_parameters()] if trained is None else trained
        self._wrap(objective)
        self.layout_kind, self.why_padded = first_possible(self.layouts)
        """And why rows are padded, where the kernels could pack them; else empty."""
        self.merged_lanes = 1
        """Lanes of a rank in one batch, until `settle_memory` says otherwise."""

    def _wrap(self, objective: Objective) -> None:
        """Make the optimizer and DeepSpeed's engine around a model with its weights."""
        section, device, precision = self._section, self.device, self.precision
        if "LOCAL_RANK" not in os.environ:  # DeepSpeed reads it even if no launcher set it, stage 3 while it trains
            os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        parameters = dict(objective.model.named_parameters())
        frozen = {name: parameter for name, parameter in parameters.items() if name not in self.trained}
        self._frozen = FrozenWeights(frozen, precision, device)
        use_kernels(objective, device, section.kernels)
        self.layouts = objective.layouts(device, DTYPES[precision])
        self._is_fresh = True
        objective.to(device)
        optimizer = self._optimizer
        groups = decay_groups(objective, optimizer.weight_decay, early_bucket_elements(section))
        kept = {name: optimizer.states_of(name, tuple(parameters[name].shape)) for name in self.trained}
        of_parameters = {parameters[name]: shapes for name, shapes in kept.items()}
        self.moments = {name: kept.get(name, {}) for name in parameters}
        # at a rate of 0, because stage 0 in bf16 takes a dummy step while it initialises
        self._states = OptimizerStates(optimizer, groups, of_parameters, stage=section.zero_stage, precision=precision)
        self._average = WeightAverage(self._states.optimizer, self._ema_decay)
        self._last: StepResult | None = None
        self._factor, self._gradient_scale = torch.zeros((), device=device), torch.zeros((), device=device)
        self._factor_told = 0.0
        if section.zero_stage == 3:
            prepare_for_stage_3(objective)
        config = deepspeed_config(
            section, precision=precision, clip_norm=optimizer.clip_norm, world_size=dist.get_world_size()
        )
        with restored_environment():
            # to recognise its own Muon, DeepSpeed imports it, and its decorators torch's compiler, for a second
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
            self._engine, *_ = deepspeed.initialize(
                model=objective, optimizer=self._states.optimizer, config=config, dist_init_required=False
            )
        self._stage = STAGES[section.zero_stage](self._engine, section, precision, device, optimizer.clip_norm)
        if optimizer.gathers:
            self._states.optimizer.places = self._stage.places([parameters[n] for n in self.trained])  # type: ignore[attr-defined]
        self._states.set_steps(0)

    def renew(self, objective: Objective) -> None:
        """Make all anew around a new module of the same model, with its weights."""
        self.close()
        gc.collect()
        self._wrap(objective)

    def accumulate(self, batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        """Forward and backward of one micro-batch; the loss sum times `scale` is differentiated."""
        self._engine.set_gradient_accumulation_boundary(is_last)
        self._stage.begin_micro_batch(is_last=is_last)
        # with the caller's scale, what is averaged over the ranks is to be a sum over the update's tokens
        factor = scale * (dist.get_world_size() if self._stage.averages else 1)

        def gradient_scale() -> Tensor:
            self._settle_loss_scale()
            return self._gradient_scale.fill_(factor * self.loss_scale)

        # in fp16, scaling cannot bring back gradients that underflowed to 0 before it
        is_scaled = self.precision == "fp16" and factor
        loss_sum, nll_sum = self._engine(
            *batch.arguments(), gradient_scale=gradient_scale if is_scaled else None, scales_BT=batch.scales
        )
        self._settle_loss_scale()
        if self._factor_told != (told := factor * self._stage.scale_left_out):
            self._factor_told = told
            self._factor.fill_(told)  # on the device, so that micro-batches of one shape ask for the same operators
        self._engine.backward(loss_sum * self._factor, scale_wrt_gas=False)
        self._stage.end_micro_batch()
        return ObjectiveOutput(loss_sum.detach(), nll_sum.detach())

    def step(self, lr: float) -> StepResult:
        """Apply the accumulated gradient at this rate, or skip it if it is not finite; then reset it.

        Where the device can decide which, this does not wait for it. What is asked of the engine afterwards is asked of
        the weights after this step.
        """
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

    def parameter_sizes(self) -> dict[str, int]:
        """Number of elements of every whole parameter."""
        return {name: math.prod(shape) for name, shape in self.parameter_shapes().items()}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every whole parameter, in the order of `parameter_states`."""
        # at stage 3 a parameter is empty while it is not in use
        return {name: tuple(getattr(p, "ds_shape", p.shape)) for name, p in self._model.named_parameters()}

    def own_weights(self) -> Iterator[tuple[str, int, Tensor]]:
        """This rank's part of the fp32 weights, as it is updated: name, place of its first element, elements in a row.

        All ranks' parts together are every weight once, except frozen ones. Asked of one rank alone it sends
        nothing; never waits.
        """
        for name, parameter in self._model.named_parameters():
            if name in self.trained:
                yield name, *self._stage.own_part(parameter)

    def parameter_states(self) -> Iterator[ParameterState]:
        """Every parameter, gathered one at a time in the order of `named_parameters`."""
        has_stepped = self._states.have_begun
        has_ema = self._average.has_begun
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

    def load_moments(
        self,
        moments: Callable[[str], dict[str, Tensor]],
        weights: Callable[[str], Tensor],
        ema: Callable[[str], Tensor],
        *,
        num_steps: int,
    ) -> None:
        """Load a checkpoint's optimizer state and fp32 master weights, one parameter after the other.

        Args:
            moments: gives the moments of a parameter that is trained by its name; whole, in fp32.
            weights: gives a parameter that is trained, by its name.
            ema: gives its moving average, by its name; not called if none is kept, or of what is frozen.
            num_steps: updates that are averaged in the moments.

        Raises:
            NotFiniteError: see `try_shapes`; on all ranks.
        """
        if not self._states.have_begun:  # DeepSpeed can set the moments only once they exist
            self.try_shapes([(1, 1, 1)])
        self._is_fresh = False
        if self.keeps_ema and not self._average.has_begun:
            self._average.begin()
        for name, parameter in self._model.named_parameters():
            if name not in self.trained:  # its weights are in the model already
                continue
            self._stage.set_weight(parameter, weights(name))
            values = moments(name) | ({EMA: ema(name)} if self.keeps_ema else {})
            for key, value in values.items():
                self._stage.set_state(parameter, key, value)
        self._states.set_steps(num_steps)
        self._average.num_updates, self._last = num_steps, None

    def fp16_state(self) -> dict[str, float]:
        """The loss scale of fp16, and its counts: updates since the last overflow, overflows left; else empty."""
        self._settle_loss_scale()
        if (scaler := self._stage.scaler) is None:
            return {}
        since = scaler.cur_iter - scaler.last_overflow_iter - 1
        return {"scale": self.loss_scale, "since": since, "hysteresis": getattr(scaler, "cur_hysteresis", 1)}

    def set_fp16_state(self, state: Mapping[str, float]) -> None:
        """Set what `fp16_state` gave, after `load_moments`; does nothing in other precisions."""
        if (scaler := self._stage.scaler) is not None and state:
            scaler.cur_scale, scaler.cur_hysteresis = state["scale"], state["hysteresis"]
            scaler.cur_iter, scaler.last_overflow_iter = state["since"], -1

    def copy_weights_to(self, model: nn.Module) -> None:
        """Fill a plain model with the weights to evaluate: their moving average if one is kept."""
        targets = dict(model.named_parameters())
        has_ema = self._average.has_begun
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if has_ema and name in self.trained:
                    targets[name].copy_(self._stage.state(parameter, EMA))
                else:
                    self._stage.copy(parameter, targets[name])

    @property
    def loss_scale(self) -> float:
        """The current loss scale of fp16; 1 in other precisions."""
        return 1.0 if self._stage.scaler is None else float(self._stage.scaler.cur_scale)

    def try_shapes(self, shapes: Sequence[Shape], *, steps: bool = True) -> None:
        """Try one update with micro-batches of these shapes: it uses all its memory and changes nothing.

        Must be called before the first update and before `load_moments`.

        Args:
            shapes: of the micro-batches.
            steps: False: only their passes, in which at stages 0 and 1 no rank waits for another. A call that steps
                must follow.

        Raises:
            NotFiniteError: on all ranks.
        """
        assert self._is_fresh, "a step at a rate of 0 would let the moments decay"
        if self.keeps_ema and not self._average.has_begun:
            self._try_shapes([(1, 1, 1)])
            self._average.begin()  # so that its memory is in use while the shapes are tried
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

    def close(self) -> None:
        """Free the memory, so that another engine can be made."""
        parameters, masters = list(self._model.parameters()), self._states.optimizer
        self._stage.close()
        self._engine.destroy()
        # Hooks keep the wrappers of stages 1 and 3 alive for ever (0.19.8), so their contents are removed.
        if self._engine.optimizer is not masters:
            vars(self._engine.optimizer).clear()
        self._engine.optimizer = None
        masters.state.clear()
        masters.param_groups.clear()
        for parameter in parameters:
            parameter.grad, parameter.data = None, parameter.new_empty(0)
        del self._engine, self._stage

    @property
    def _model(self) -> Transformer:
        objective: Objective = self._engine.module
        return objective.model
