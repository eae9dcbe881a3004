"""Types for the costs of a model's parts."""

from collections.abc import Iterator
from dataclasses import dataclass

FLOAT = 4
"""Bytes of an fp32 number."""
NamedShape = tuple[str, tuple[int, ...]]
"""A parameter: its name within the part, and its shape."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Storage:
    """How a device stores what the backward pass needs."""

    element: int
    """Bytes of an element in the training precision."""
    mask: int
    """Bytes for each element of a dropout mask."""
    is_fused: bool
    """Whether attention keeps only log-sum-exps instead of its weights, and RMS norm only a deviation."""

    def masks(self, elements: int, probability: float) -> int:
        """Bytes of a dropout mask."""
        return elements * self.mask if probability else 0


@dataclass(kw_only=True, slots=True, frozen=True)
class LossBytes:
    """Bytes held by the output layer and the loss."""

    kept: int
    """Held from the forward to the backward pass."""
    working: int
    """Peak in addition: logits in the forward pass, or gradients in the backward pass."""

    @property
    def total(self) -> int:
        """At most."""
        return self.kept + self.working


def linear(name: str, inputs: int, outputs: int, *, bias: bool) -> Iterator[NamedShape]:
    """The parameters of a linear layer."""
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)
