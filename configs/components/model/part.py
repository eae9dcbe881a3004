"""What all parts of a model have in common."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from configs.components.registry import Component, kinds
from configs.errors import UserError

if TYPE_CHECKING:
    from configs.model import ModelSection


class UnsaidError(UserError):
    """A part does not say one of its costs; it can be trained all the same."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class ModelPart(Component):
    """A part of a model, chosen in the section `model` under the name of its family."""

    programs: ClassVar[frozenset[str]] = frozenset()
    """Of `huggingface` and `ctranslate2`, those that have such a part: what `exported` knows how to say. An export as
    safetensors takes every model."""
    same_weights: ClassVar[frozenset[str]] = frozenset({"dropout"})
    """Fields that may change where a run goes on: weights mean the same by any of their values."""

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """Why a program has no such part, one line each, which begins with the field's place in `model`."""
        if program not in self.programs:
            known = ", ".join(kind for kind, part in kinds(self.family).items() if program in part.programs)
            yield f"{self.family}.kind: {self.kind!r}; allowed is {known}"

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """What the part is called in the program's own configuration, option by option.

        Args:
            program: one of `programs`.
            model: of which this is a part.
        """
        raise NotImplementedError

    def plain_weights(self, weights: Mapping[str, Any], model: "ModelSection") -> dict[str, Any]:
        """The same function in the weights that other programs have (see `trainer.inference.export.plain`).

        Args:
            weights: this part's of one layer, by their names within it.
            model: of which this is a part.
        """
        return dict(weights)

    def unsaid(self, cost: str) -> "UnsaidError":
        """What to raise where a part does not say what a plan asks for."""
        return UnsaidError(
            f"model.{self.family}.kind: {self.kind!r} does not say its {cost}, which a plan adds up; allowed is a "
            f"component with a method `{cost}`"
        )
