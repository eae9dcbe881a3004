"""The common base class of a model's parts."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from configs.components.registry import Component, kinds
from configs.errors import UserError


class UndeclaredError(UserError):
    """A part does not state one of its costs. It can be trained, but not planned."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class ModelPart(Component):
    """A part of a model, chosen in the section `model` by the key that is the name of its family."""

    programs: ClassVar[frozenset[str]] = frozenset()
    """The programs that the part can be exported to, of `huggingface` and `ctranslate2`; `exported` gives its options
    there. Exports as safetensors support every part.
    """
    same_weights: ClassVar[frozenset[str]] = frozenset({"dropout"})
    """Fields that may change when a run resumes, because they do not change the meaning of the weights."""

    packs_rows: ClassVar[bool] = False
    """Whether its module computes each token from that token alone, so that rows need no padding; an attention, whether
    `model.kernels` has one for it. Each class says so itself: a class derived from it may compute something else.
    """

    def export_problems(self, program: str, model: Any) -> Iterator[str]:
        """Why a program does not support the part, one line each, beginning with the field's path in `model`."""
        if program not in self.programs:
            known = ", ".join(kind for kind, part in kinds(self.family).items() if program in part.programs)
            yield f"{self.family}.kind: {self.kind!r}; allowed is {known}"

    def exported(self, program: str, model: Any) -> dict[str, Any]:
        """The part's options in the program's own configuration.

        Args:
            program: one of `programs`.
            model: the section `model` that this part belongs to, a `configs.ModelSection`.
        """
        raise NotImplementedError

    def plain_weights(self, weights: Mapping[str, Any], model: Any) -> dict[str, Any]:
        """Weights with which other programs compute the same function (see `zeromt.exporting.plain`).

        Args:
            weights: this part's weights in one layer, by their names in the part.
            model: the section `model` that this part belongs to, a `configs.ModelSection`.
        """
        return dict(weights)

    def undeclared(self, cost: str) -> "UndeclaredError":
        """The error for a cost that a plan needs and the part does not state."""
        return UndeclaredError(
            f"model.{self.family}.kind: {self.kind!r} does not state its {cost}, which a plan needs; add a method "
            f"`{cost}` to the component, or use another kind"
        )
