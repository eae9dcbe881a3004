"""What an optimizer keeps: the tensors that its component declares, and nothing else.

At stages 1 to 3 DeepSpeed gives an optimizer flat pieces of many parameters in their place, and each of its tensors
must have the shape of what it steps on.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from configs import Optimizer, UserError
from trainer.engines.ema import EMA
from trainer.ranks.precision import Precision

Kept = Mapping[str, tuple[int, ...]]
"""Shapes of what is kept of a parameter, by their names."""
STEP = "step"
"""The number of steps, in the state of most optimizers; the engine counts for it."""


class OptimizerStates:
    """The states of an optimizer, and whether they can be saved."""

    def __init__(
        self,
        section: Optimizer,
        groups: Sequence[Mapping[str, Any]],
        kept: Mapping[nn.Parameter, Kept],
        *,
        stage: int,
        precision: Precision,
    ) -> None:
        """Build it.

        Args:
            section: of the configuration.
            groups: of parameters; those that keep tensors of other names get groups of their own, with these names as
                `states`.
            kept: what the section says that it keeps of each parameter.
            stage: of ZeRO.
            precision: of the model; in fp32 stage 0 steps on the parameters themselves.

        Raises:
            UserError: it cannot be built, declares no state, or has some already, which those pieces would not have.
        """
        self._kind = section.kind
        self._kinds = list(dict.fromkeys(tuple(shapes) for shapes in kept.values()))
        self.is_checked = False
        """Whether what it keeps was compared with what it declares."""
        if not kept or not all(kept.values()):
            raise UserError(f"{self._what}: its `states` is empty; name at least one tensor that it keeps")
        divided = [
            {**group, "params": [p for p in group["params"] if tuple(kept[p]) == states], "states": states}
            for group in groups
            for states in self._kinds
        ]
        groups = [group for group in divided if group["params"]]
        self._kept = [kept[parameter] for group in groups for parameter in group["params"]] if stage == 0 else []
        with self._naming("cannot be built"):
            self.optimizer: torch.optim.Optimizer = section.build(groups)
        self._first = self._numbers()
        if self.optimizer.state and (stage, precision) != (0, "fp32"):
            raise UserError(
                f"{self._what}: it keeps state of parameters before its first step, and ZeRO then puts pieces in their "
                "place; make it in the first step, or train with engine.zero_stage=0 and engine.precision=fp32"
            )

    def first_step(self) -> contextlib.AbstractContextManager[None]:
        """In it the first step is made; an error is one of the user's.

        Raises:
            UserError: the step failed.
        """
        return self._naming("its step fails")

    def check(self) -> None:
        """Compare what it keeps after a step with what it declares.

        Raises:
            UserError: naming what differs; the same on all ranks.
        """
        self.is_checked = True
        tensors = [tensor for group in self.optimizer.param_groups for tensor in group["params"]]
        declared = dict(zip(tensors, self._kept, strict=True)) if self._kept else {}
        of_parameters = {
            tensor: {
                key: tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                for key, value in state.items()
                if key not in (STEP, EMA) and value is not None
            }
            for tensor, state in self.optimizer.state.items()
        }
        if not of_parameters:
            raise UserError(f"{self._what}: it keeps nothing after a step, and it says {self._kinds[0]}")
        for tensor, kept in of_parameters.items():
            shape = tuple(tensor.shape)
            allowed = [declared[tensor]] if declared else [dict.fromkeys(names, shape) for names in self._kinds]
            if kept not in allowed:
                raise UserError(
                    f"{self._what}: of {shape} it keeps {kept}, and it says {dict(allowed[0])}; say so by `states` or "
                    "`states_of`, and `scope`; allowed are tensors, and a count of steps"
                )
        if self._numbers() != self._first:
            raise UserError(f"{self._what}: its steps change numbers of its groups, which a checkpoint would lack")

    def set_steps(self, num_steps: int) -> None:
        """Set its own counter of steps, which bias corrections use."""
        for state in self.optimizer.state.values():
            if isinstance(state.get(STEP), Tensor):
                state[STEP].fill_(num_steps)
            elif STEP in state:
                state[STEP] = num_steps

    @property
    def have_begun(self) -> bool:
        """Whether it keeps tensors; the same on all ranks."""
        names = {name for names in self._kinds for name in names}
        return any(names & state.keys() for state in self.optimizer.state.values())

    @contextlib.contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError, NotImplementedError) as error:
            raise UserError(f"{self._what}: {what}: {type(error).__name__}: {error}") from error

    @property
    def _what(self) -> str:
        return f"optimizer.kind: {self._kind}"

    def _numbers(self) -> list[dict[str, Any]]:
        """The numbers of its groups, except the learning rate."""
        groups = self.optimizer.param_groups
        return [{key: x for key, x in one.items() if isinstance(x, int | float) and key != "lr"} for one in groups]


def decay_groups(model: nn.Module, weight_decay: float, most_elements: int | None = None) -> list[dict[str, Any]]:
    """Groups of parameters: weight decay applies to matrices, not to norms and biases. None is empty.

    Args:
        model: its parameters are trained, except those without a gradient.
        weight_decay: of matrices.
        most_elements: of a group of several parameters; None: any number. Cut from the end of the model on, where a
            backward pass begins.
    """
    open_: dict[bool, dict[str, Any]] = {}
    sizes = {True: 0, False: 0}
    groups: list[dict[str, Any]] = []
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        is_matrix = parameter.ndim >= 2
        sizes[is_matrix] += parameter.numel()
        if is_matrix not in open_ or (most_elements is not None and sizes[is_matrix] > most_elements):
            open_[is_matrix] = {"params": [], "weight_decay": weight_decay if is_matrix else 0.0}
            sizes[is_matrix] = parameter.numel()
            groups.append(open_[is_matrix])
        open_[is_matrix]["params"].insert(0, parameter)
    return groups[::-1]
