"""What the trainer needs of a training back end, and what passes between them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from model import Objective, ObjectiveOutput
from model.layout import Layout, LayoutKind
from trainer.ranks.precision import Precision

Shape = tuple[int, int, int]
"""Shape of a micro-batch: rows, padded source length, padded target length."""


@dataclass(kw_only=True, slots=True, frozen=True)
class DeviceBatch:
    """What goes through the model at once, on the device: source (B, S), target with BOS (B, T) and with EOS (B, T).

    Packed, (1, N) each.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    layout: Layout | None = None
    """Where the tokens stand, for kernels that know it."""
    scales: Tensor | None = None
    """(B, T) or (1, N) in fp32: weights of the targets' losses; None: all 1."""

    def arguments(self, gradient_scale: float | Callable[[], float] = 1.0) -> tuple[Any, ...]:
        """Those of `Objective.forward`; the layout is among them only if there is one: plain objectives take none."""
        layout = () if self.layout is None else (self.layout,)
        return self.source, self.target_input, self.target_output, gradient_scale, *layout

    def keywords(self) -> dict[str, Any]:
        """Those of `Objective.forward` that only weighted pairs have."""
        return {} if self.scales is None else {"scales_BT": self.scales}


class HostCopy:
    """A copy of a tensor to the host, made behind what the device has been given so far.

    Read it once the device has been given more to do: a read that comes too early waits, but the device goes on.
    """

    def __init__(self, tensor: Tensor) -> None:
        """Begin it."""
        self._tensor = tensor.detach()
        self._event: torch.Event | None = None
        if tensor.device.type != "cpu":
            self._tensor = torch.empty(tensor.shape, dtype=tensor.dtype).pin_memory()
            self._tensor.copy_(tensor.detach(), non_blocking=True)
            self._event = torch.get_device_module(tensor.device).Event()
            self._event.record()

    def read(self) -> Tensor:
        """The copy, complete."""
        if self._event is not None:
            self._event.synchronize()
        return self._tensor


class StepResult:
    """The outcome of an update. The device may not have made it yet: who asks too early waits for it."""

    def __init__(self, *, grad_norm: Tensor | float | Callable[[], Tensor], applied: bool | None = None) -> None:
        """Of a step that was made, or that the device decides on.

        Args:
            grad_norm: the property, or what reads it from the device.
            applied: the property; None if the norm tells.
        """
        self._grad_norm = grad_norm
        self._applied = applied

    @property
    def applied(self) -> bool:
        """False if a gradient was not finite; then no rank changed anything."""
        return math.isfinite(float(self.grad_norm)) if self._applied is None else self._applied

    @property
    def grad_norm(self) -> Tensor | float:
        """Global L2 norm of the gradient before clipping; infinite or NaN if the update was not applied."""
        if callable(self._grad_norm) and not isinstance(self._grad_norm, Tensor):
            self._grad_norm = self._grad_norm()
        return self._grad_norm


class NotFiniteError(Exception):
    """Nothing can be trained with an engine's weights: what a pass computes with them is not finite."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ParameterState:
    """One whole parameter in fp32, with its optimizer states (None before the first step, none of a frozen one)."""

    name: str
    weight: Tensor
    moments: dict[str, Tensor] | None
    ema: Tensor | None = None
    """Its exponential moving average; None if none is kept, or before the first update or trial."""


class Engine(Protocol):
    """What the trainer needs of a training back end. Every method is called on all ranks alike."""

    device: torch.device
    precision: Precision
    keeps_ema: bool
    """Whether it keeps an exponential moving average of the weights."""
    moments: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By each parameter's name: shapes of what the optimizer keeps of it, by their names; none where it is frozen."""
    trained: Mapping[str, int]
    """By the name of each parameter that is trained: steps of the optimizer before its own first one; it was frozen
    until then, and bias corrections count from there. The others are frozen: they have no moments, and their average is
    themselves."""
    layouts: Mapping[LayoutKind, str]
    """What `Objective.layouts` says of this rank's device."""
    layout_kind: LayoutKind
    """Layout of the batches that it is to be given: the first possible until `settle_attention` says otherwise."""
    why_padded: str
    """Why they are not packed, where the kernels could; empty elsewhere."""
    merged_lanes: int
    """Lanes of a rank in one batch; 1 until `settle_memory` says otherwise."""

    def accumulate(self, batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        """Forward and backward of one micro-batch; the loss sum times `scale` is differentiated."""
        ...

    def step(self, lr: float) -> StepResult:
        """Apply the accumulated gradient at this rate, or skip it if it is not finite; then reset it.

        Where the device can decide which, this does not wait for it. What is asked of the engine afterwards is asked of
        the weights after this step.
        """
        ...

    def parameter_sizes(self) -> dict[str, int]:
        """Number of elements of every whole parameter."""
        ...

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every whole parameter, in the order of `parameter_states`."""
        ...

    def own_weights(self) -> Iterator[tuple[str, int, Tensor]]:
        """This rank's part of the fp32 weights, as it is updated: name, place of its first element, elements in a row.

        All ranks' parts together are every weight once, but for what is frozen. Asked of one rank alone it sends
        nothing; never waits.
        """
        ...

    def parameter_states(self) -> Iterator[ParameterState]:
        """Every parameter, gathered one at a time in the order of `named_parameters`."""
        ...

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
            weights: gives a parameter, by its name.
            ema: gives its moving average, by its name; not called if none is kept, or of what is frozen.
            num_steps: updates that are averaged in the moments.

        Raises:
            NotFiniteError: see `try_shapes`; on all ranks.
        """
        ...

    def renew(self, objective: Objective, trained: Mapping[str, int]) -> None:
        """Train other parameters: all is made anew around a new module with the weights of now.

        `load_moments` must follow: see `trainer.engines.retraining`.

        Args:
            objective: of the same model.
            trained: what is trained from now on.
        """
        ...

    def optimizer_numbers(self) -> dict[str, Any]:
        """The numbers that the optimizer keeps beside its tensors, for `set_optimizer_numbers`; often none.

        Raises:
            UserError: one differs between parameters.
        """
        ...

    def set_optimizer_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Set them, after `load_moments`."""
        ...

    def copy_weights_to(self, model: nn.Module) -> None:
        """Fill a plain model with the weights to evaluate: their moving average if one is kept."""
        ...

    @property
    def loss_scale(self) -> float:
        """The current loss scale of fp16; 1 in other precisions."""
        ...

    def set_loss_scale(self, value: float) -> None:
        """Set the loss scale; does nothing if the precision has none."""
        ...

    def replica_digest(self) -> int | None:
        """A 64-bit hash of the weights if every rank holds a copy of them; None otherwise (stage 3)."""
        ...

    def take_forward_seconds(self) -> float:
        """Seconds that this rank spent in forward passes since the last call. Never waits for the device."""
        ...

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
        ...

    def close(self) -> None:
        """Free the memory, so that another engine can be made."""
        ...
