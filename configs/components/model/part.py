"""The common base class of a model's parts."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from configs.components.registry import Component, kinds
from configs.errors import UserError

if TYPE_CHECKING:
    from configs.model import ModelSection


class UndeclaredError(UserError):
    """A part does not state one of its costs; it can still be trained."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class ModelPart(Component):
    """A part of a model, chosen in the section `model` under the name of its family."""

    programs: ClassVar[frozenset[str]] = frozenset()
    """Those of `huggingface` and `ctranslate2` that support the part, which `exported` then describes. Exports as
    safetensors support every model.
    """
    same_weights: ClassVar[frozenset[str]] = frozenset({"dropout"})
    """Fields that may change when a run resumes: weights mean the same for all their values."""

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """Why a program does not support the part, one line each, beginning with the field's place in `model`."""
        if program not in self.programs:
            known = ", ".join(kind for kind, part in kinds(self.family).items() if program in part.programs)
            yield f"{self.family}.kind: {self.kind!r}; allowed is {known}"

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """The part's options in the program's own configuration.

        Args:
            program: one of `programs`.
            model: of which this is a part.
        """
        raise NotImplementedError

    def plain_weights(self, weights: Mapping[str, Any], model: "ModelSection") -> dict[str, Any]:
        """The same function in other programs' weights (see `trainer.inference.export.plain`).

        Args:
            weights: this part's weights in one layer, by their names within it.
            model: of which this is a part.
        """
        return dict(weights)

    def undeclared(self, cost: str) -> "UndeclaredError":
        """The error for a cost that a part does not state and a plan needs."""
        return UndeclaredError(
            f"model.{self.family}.kind: {self.kind!r} does not say its {cost}, which a plan adds up; allowed is a "
            f"component with a method `{cost}`"
        )
