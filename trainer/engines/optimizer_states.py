"""What an optimizer keeps: the tensors that its component declares, numbers beside them, and nothing else.

DeepSpeed's stages give an optimizer flat pieces of many parameters in their place. So it must work element by element:
each of its tensors has the shape of what it steps on, and a number beside them (`mu_product` of NAdam) is the same for
all. Numbers of its groups (`d` of Prodigy) are kept if they are others than at the beginning.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from configs import Optimizer, UserError
from trainer.engines.ema import EMA
from trainer.engines.pull import PARENT

STEP = "step"
"""The number of steps, in the state of most optimizers; the engine counts for it."""
_BESIDE = (STEP, EMA, PARENT)
"""What the engine adds to an optimizer's states, or counts for it."""
_NOT_KEPT = ("params", "lr")
"""What a group has that is no state of the optimizer's."""


class OptimizerStates:
    """The states of an optimizer: whether they can be saved, and the numbers among them."""

    def __init__(self, section: Optimizer, groups: Sequence[Mapping[str, Any]], *, of_parameters: bool) -> None:
        """Build it, and note what its groups hold before the first step.

        Args:
            section: of the configuration.
            groups: of parameters.
            of_parameters: whether it steps on them, and not on pieces that DeepSpeed makes of them.

        Raises:
            UserError: it cannot be built, declares no state, or has some already, which those pieces would not have.
        """
        self._kind, self._names = section.kind, section.states
        self.is_checked = False
        """Whether what it keeps was compared with what it declares."""
        if not self._names:
            raise UserError(f"{self._what}: its `states` is empty; name at least one tensor that it keeps")
        with self._naming("cannot be built"):
            self.optimizer: torch.optim.Optimizer = section.build(groups)
        self._first = [_numbers(group, _NOT_KEPT) for group in self.optimizer.param_groups]
        if self.optimizer.state and not of_parameters:
            raise UserError(
                f"{self._what}: it keeps state of parameters before its first step, and ZeRO then puts pieces in their "
                "place; make it in the first step, or train with engine.zero_stage=0 and engine.precision=fp32"
            )

    def first_step(self) -> contextlib.AbstractContextManager[None]:
        """In it the first step is made; an error is one of the user's.

        Raises:
            UserError: the step failed.
        """
        return self._naming("its step fails, on the pieces of parameters that ZeRO makes")

    def check(self) -> None:
        """Compare what it keeps after a step with what it declares.

        Raises:
            UserError: naming what differs; the same on all ranks.
        """
        self.is_checked = True
        if (problem := next(self._problems(), None)) is not None:
            raise UserError(f"{self._what}: {problem}")

    def numbers(self) -> dict[str, Any]:
        """The numbers beside its tensors, and those of its groups that have changed, for checkpoints.

        Raises:
            UserError: one is not the same for all parameters.
        """
        beside: dict[str, float] = {}
        for state in self.optimizer.state.values():
            for key, number in _numbers(state, (*self._names, *_BESIDE)).items():
                if beside.setdefault(key, number) != number:
                    raise UserError(
                        f"{self._what}: its {key} is {beside[key]} for one parameter and {number} for another; allowed "
                        "are numbers that are the same for all"
                    )
        groups = [
            {key: number for key, number in _numbers(group, _NOT_KEPT).items() if first.get(key) != number}
            for group, first in zip(self.optimizer.param_groups, self._first, strict=True)
        ]
        return {"beside": beside, "groups": groups} if beside or any(groups) else {}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Set what `numbers` gave; its state must exist."""
        for state in self.optimizer.state.values():
            _set(state, numbers.get("beside", {}))
        for group, given in zip(self.optimizer.param_groups, numbers.get("groups", ()), strict=False):
            _set(group, given)

    def set_steps(self, num_steps: int) -> None:
        """Set its own counter of steps, which bias corrections use."""
        for state in self.optimizer.state.values():
            if STEP in state:
                _set(state, {STEP: num_steps})

    def begin(self) -> None:
        """Take back what steps at a rate of 0 have done to numbers: it makes its state anew if it keeps any."""
        for group, first in zip(self.optimizer.param_groups, self._first, strict=True):
            for key in _numbers(group, (*_NOT_KEPT, *first)):
                del group[key]
            _set(group, first)
        if any(_numbers(state, (*self._names, *_BESIDE)) for state in self.optimizer.state.values()):
            self.optimizer.state.clear()

    @property
    def have_begun(self) -> bool:
        """Whether it keeps tensors; the same on all ranks."""
        return any(self._names[0] in state for state in self.optimizer.state.values())

    @contextlib.contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError, NotImplementedError) as error:
            raise UserError(f"{self._what}: {what}: {type(error).__name__}: {error}") from error

    @property
    def _what(self) -> str:
        return f"optimizer.kind: {self._kind}"

    def _problems(self) -> Iterator[str]:
        declared = f"its `states` are {', '.join(self._names)}"
        if not self.optimizer.state:
            yield f"it keeps nothing after a step; {declared}"
        for tensor, state in self.optimizer.state.items():
            for key in self._names:
                kept = state.get(key)
                if not isinstance(kept, Tensor):
                    yield f"it keeps no tensor {key}; {declared}"
                elif kept.shape != tensor.shape:
                    yield f"its {key} has the shape {list(kept.shape)} where it steps on {list(tensor.shape)}; {_ALONE}"
            for key, kept in state.items():
                if key in (*self._names, *_BESIDE) or _number(kept) is not None:
                    continue
                if isinstance(kept, Tensor):
                    yield f"it keeps a tensor {key} too, and {declared}; a checkpoint would lack it: add it there"
                elif kept is not None:
                    yield f"it keeps {key}, a {type(kept).__name__}; allowed are tensors and numbers"


_ALONE = "allowed are optimizers that work element by element"


def _number(value: Any) -> float | int | bool | None:
    """A number, or a tensor of one; None for anything else."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else None
    return value if isinstance(value, bool | int | float) else None


def _numbers(of: Mapping[str, Any], leaving_out: tuple[str, ...]) -> dict[str, Any]:
    numbers = {key: _number(value) for key, value in of.items() if key not in leaving_out}
    return {key: number for key, number in numbers.items() if number is not None}


def _set(of: dict[str, Any], numbers: Mapping[str, Any]) -> None:
    for key, number in numbers.items():
        if isinstance(of.get(key), Tensor):
            of[key].fill_(number)
        else:
            of[key] = number
