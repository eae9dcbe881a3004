"""What the trainer needs of a training back end, and what passes between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from model import ObjectiveOutput
from model.layout import Layout
from trainer.engines.trial import Shape


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


@dataclass(kw_only=True, slots=True, frozen=True)
class StepResult:
    """What became of an update."""

    applied: bool
    """False where a gradient was not finite; nothing was changed then, on no rank."""
    grad_norm: Tensor | float
    """Global L2 norm of the gradient before clipping; infinite or NaN where the update was not applied."""


@dataclass(kw_only=True, slots=True, frozen=True)
class ParameterState:
    """One parameter, whole, in fp32, with the states that the optimizer keeps of it (None before the first step)."""

    name: str
    weight: Tensor
    moments: dict[str, Tensor] | None
    ema: Tensor | None = None
    """Its exponential moving average; None where none is kept, or nothing was updated or tried yet."""


class Engine(Protocol):
    """What the trainer needs of a training back end. Every method is called on all ranks alike."""

    device: torch.device
    keeps_ema: bool
    """Whether it keeps an exponential moving average of the weights."""
    moments: tuple[str, ...]
    """Names of what the optimizer keeps of each parameter."""

    def accumulate(self, batch: DeviceBatch, *, scale: float, is_last: bool) -> ObjectiveOutput:
        """Forward and backward of one micro-batch; the loss sum times `scale` is differentiated."""
        ...

    def step(self, lr: float) -> StepResult:
        """Apply the accumulated gradient at this rate, or skip it where it is not finite; forget it either way."""
        ...

    def parameter_sizes(self) -> dict[str, int]:
        """Elements of every parameter, whole."""
        ...

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every parameter, whole, in the order of `parameter_states`."""
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
        """Put a checkpoint's optimizer state and fp32 masters in place, one parameter after the other.

        Args:
            moments: gives a parameter's, by its name; whole, in fp32.
            weights: gives a parameter, by its name.
            ema: gives its moving average, by its name; not asked where none is kept.
            num_steps: updates that the moments have seen.
        """
        ...

    def copy_weights_to(self, model: nn.Module) -> None:
        """Fill a plain model of the same shape with the weights to be judged: their moving average where it is kept."""
        ...

    @property
    def loss_scale(self) -> float:
        """What fp16 losses are multiplied by for now; 1 in other precisions."""
        ...

    def set_loss_scale(self, value: float) -> None:
        """Go on from another loss scale; nothing where the precision has none."""
        ...

    def replica_digest(self) -> int | None:
        """A 64-bit hash of the weights that every rank holds a copy of; None where none does (stage 3)."""
        ...

    def take_forward_seconds(self) -> float:
        """Time that this rank spent forward since it was last asked. Never waits for the device."""
        ...

    def try_shapes(self, shapes: Sequence[Shape]) -> None:
        """One update of micro-batches of these shapes, thrown away: nothing is changed, all its memory is used.

        To be called before the first update and before `load_moments`.
        """
        ...

    def would_fit(self, shapes: Sequence[Shape]) -> bool:
        """Whether a plain model goes forward and backward on these shapes in the memory left.

        This rank's own answer. Unlike `try_shapes` it leaves the engine usable where the answer is no. At stage 3 the
        plain model is larger than this rank's shard.
        """
        ...

    def close(self) -> None:
        """Let go of the memory, so that another engine can take its place."""
        ...
