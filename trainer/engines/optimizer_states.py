"""What an optimizer keeps: the tensors and numbers that its component declares, and nothing else.

At stages 1 to 3 DeepSpeed gives an optimizer flat pieces of many parameters in their place, and each of its tensors
must have the shape of what it steps on. A number beside them (`mu_product` of NAdam) is the same for all parameters.
Where numbers are not declared, all are kept, those of groups (`d` of Prodigy) if they are others than at the beginning.
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
_BESIDE = (STEP, EMA)
"""What the engine adds to an optimizer's states, or counts for it."""
_NOT_KEPT = ("params", "lr")
"""What a group has that is no state of the optimizer's."""

SINCE = "since"
"""Key of a parameter group whose parameters were frozen at first: see `trainer.engines.protocol.Engine.trained`."""


class OptimizerStates:
    """The states of an optimizer: whether they can be saved, and the numbers among them."""

    def __init__(
        self,
        section: Optimizer,
        groups: Sequence[Mapping[str, Any]],
        kept: Mapping[nn.Parameter, Kept],
        *,
        stage: int,
        precision: Precision,
    ) -> None:
        """Build it, and note what its groups hold before the first step.

        Args:
            section: of the configuration.
            groups: of parameters; those that keep tensors of other names get groups of their own.
            kept: what the section says that it keeps of each parameter.
            stage: of ZeRO.
            precision: of the model; in fp32 stage 0 steps on the parameters themselves.

        Raises:
            UserError: it cannot be built, declares no state, or has some already, which those pieces would not have.
        """
        self._kind, self._section = section.kind, section
        self._kinds = list(dict.fromkeys(tuple(shapes) for shapes in kept.values()))
        self._names = tuple(dict.fromkeys(key for shapes in kept.values() for key in shapes))
        self.is_checked = False
        """Whether what it keeps was compared with what it declares."""
        if not kept or not all(kept.values()):
            raise UserError(f"{self._what}: its `states` is empty; name at least one tensor that it keeps")
        groups = by_states(groups, kept)
        self._kept = [[kept[parameter] for parameter in group["params"]] for group in groups] if stage == 0 else None
        with self._naming("cannot be built"):
            self.optimizer: torch.optim.Optimizer = section.build(groups)
        self._since: dict[Tensor, int] = {}
        if any(SINCE in group for group in groups):
            self.optimizer.register_step_pre_hook(self._note_since)
        self._first = [_numbers(group, _NOT_KEPT) for group in self.optimizer.param_groups]
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
        if (problem := next(self._problems(), None)) is not None:
            raise UserError(f"{self._what}: {problem}")

    def numbers(self) -> dict[str, Any]:
        """The numbers beside its tensors, and those of its groups that have changed, for checkpoints.

        Raises:
            UserError: one is not the same for all parameters, or for all groups, of which another stage has others.
        """
        beside: dict[str, float] = {}
        for state in self.optimizer.state.values():
            for key, number in _numbers(state, (*self._names, *_BESIDE)).items():
                if beside.setdefault(key, number) != number:
                    raise UserError(
                        f"{self._what}: its {key} is {beside[key]} for one parameter and {number} for another; allowed "
                        "are numbers that are the same for all"
                    )
        of_groups = [
            {key: number for key, number in _numbers(group, _NOT_KEPT).items() if first.get(key) != number}
            for group, first in zip(self.optimizer.param_groups, self._first, strict=True)
        ]
        if (other := next((one for one in of_groups if one != of_groups[0]), None)) is not None:
            raise UserError(
                f"{self._what}: one of its groups has {of_groups[0]} and another {other}; allowed are numbers that are "
                "the same for all"
            )
        return {"beside": beside, "group": of_groups[0]} if beside or of_groups[0] else {}

    def set_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Set what `numbers` gave; its state must exist."""
        for state in self.optimizer.state.values():
            _set(state, numbers.get("beside", {}))
        for group in self.optimizer.param_groups:
            _set(group, numbers.get("group", {}))

    def set_steps(self, num_steps: int) -> None:
        """Set its own counter of steps, which bias corrections use; less of parameters that were frozen at first."""
        for tensor, state in self.optimizer.state.items():
            if STEP in state:
                _set(state, {STEP: max(num_steps - self._since.get(tensor, 0), 0)})

    def close(self) -> None:
        """Release the tensors that it steps on."""
        self._since.clear()

    def _note_since(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Only in a step are a group's tensors there at every stage."""
        self._since |= {tensor: group.get(SINCE, 0) for group in optimizer.param_groups for tensor in group["params"]}

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
        return any(key in state for state in self.optimizer.state.values() for key in self._names)

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
        if not self.optimizer.state:
            yield f"it keeps nothing after a step; its `states` are {', '.join(self._names)}"
        declared = self._declared()
        for tensor, state in self.optimizer.state.items():
            shapes = declared.get(tensor) or dict.fromkeys(self._names_in(state), tuple(tensor.shape))
            said = f"its `states` are {', '.join(shapes)}"
            for key, shape in shapes.items():
                kept = state.get(key)
                if not isinstance(kept, Tensor):
                    yield f"it keeps no tensor {key}; {said}"
                elif tuple(kept.shape) != shape:
                    yield (
                        f"its {key} has the shape {list(kept.shape)} where it steps on {list(tensor.shape)}, and it "
                        f"says {list(shape)}; say so in `states_of` and `scope`, or keep tensors of that shape"
                    )
            for key, kept in state.items():
                if key in (*shapes, *_BESIDE):
                    continue
                if _number(kept) is not None:
                    yield from _undeclared(key, self._section.numbers, "numbers")
                elif isinstance(kept, Tensor):
                    yield f"it keeps a tensor {key} too, and {said}; a checkpoint would lack it: add it there"
                elif kept is not None:
                    yield f"it keeps {key}, a {type(kept).__name__}; allowed are tensors and numbers"
        for group, first in zip(self.optimizer.param_groups, self._first, strict=True):
            for key, number in _numbers(group, _NOT_KEPT).items():
                if first.get(key) != number:
                    yield from _undeclared(key, self._section.group_numbers, "group_numbers")

    def _names_in(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        """Of the names that are said to be kept of one parameter or another, those that a piece's state has."""
        return next((names for names in self._kinds if all(name in state for name in names)), self._kinds[0])

    def _declared(self) -> dict[Tensor, Kept]:
        """What it is said to keep of each parameter at stage 0; empty at the others, where it steps on pieces."""
        if self._kept is None:
            return {}
        both = zip(self.optimizer.param_groups, self._kept, strict=True)
        return {p: shapes for group, kept in both for p, shapes in zip(group["params"], kept, strict=True)}


def decay_groups(
    model: nn.Module, weight_decay: float, since: Mapping[nn.Parameter, int], most_elements: int | None = None
) -> list[dict[str, Any]]:
    """Groups of parameters: weight decay applies to matrices, not to norms and biases. None is empty.

    Args:
        model: whose parameters are trained, but for those without a gradient.
        weight_decay: of matrices.
        since: by parameter; those that were frozen at first have groups of their own.
        most_elements: of a group of several parameters; None: any number. Cut from the end of the model on, where a
            backward pass begins.
    """
    open_: dict[tuple[int, bool], dict[str, Any]] = {}
    sizes: dict[tuple[int, bool], int] = {}
    groups: list[dict[str, Any]] = []
    for parameter in reversed([p for p in model.parameters() if p.requires_grad]):
        kind = since[parameter], parameter.ndim >= 2
        sizes[kind] = sizes.get(kind, 0) + parameter.numel()
        if kind not in open_ or (most_elements is not None and sizes[kind] > most_elements):
            own = {SINCE: kind[0]} if kind[0] else {}
            open_[kind] = {"params": [], "weight_decay": weight_decay if kind[1] else 0.0, **own}
            sizes[kind] = parameter.numel()
            groups.append(open_[kind])
        open_[kind]["params"].insert(0, parameter)
    return groups[::-1]


def by_states(groups: Sequence[Mapping[str, Any]], kept: Mapping[nn.Parameter, Kept]) -> list[dict[str, Any]]:
    """The groups, divided by the names of what is kept of their parameters, which are a group's `states`.

    Args:
        groups: of parameters.
        kept: of each parameter.
    """
    kinds = dict.fromkeys(tuple(shapes) for shapes in kept.values())
    divided = [
        {**group, "params": [p for p in group["params"] if tuple(kept[p]) == states], "states": states}
        for group in groups
        for states in kinds
    ]
    return [group for group in divided if group["params"]]


def _undeclared(key: str, declared: Sequence[str] | None, where: str) -> Iterator[str]:
    if declared is not None and key not in declared:
        said = ", ".join(declared) or "none"
        yield f"it keeps a number {key} too, and its `{where}` are {said}; add it there"


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
