"""Types that describe the costs of a model's parts."""

from collections.abc import Iterator
from dataclasses import dataclass

FLOAT = 4
"""Bytes of an fp32 number."""
NamedShape = tuple[str, tuple[int, ...]]
"""A parameter: its name within the part, and its shape."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Storage:
    """How a device stores the activations that the backward pass needs."""

    element: int
    """Bytes of an element in the training precision."""
    mask: int
    """Bytes for each element of a dropout mask."""
    is_fused: bool
    """Whether kernels are fused: then attention keeps a log-sum-exp per row instead of its weights, and RMS norm only
    one number per row."""

    def masks(self, elements: int, probability: float) -> int:
        """Bytes of a dropout mask."""
        return elements * self.mask if probability else 0


@dataclass(kw_only=True, slots=True, frozen=True)
class LossBytes:
    """Memory of the output layer and the loss, in bytes."""

    kept: int
    """Kept from the forward to the backward pass."""
    working: int
    """Additional memory at the peak: logits in the forward pass, or gradients in the backward pass."""

    @property
    def total(self) -> int:
        """Peak memory."""
        return self.kept + self.working


def linear(name: str, inputs: int, outputs: int, *, bias: bool) -> Iterator[NamedShape]:
    """The parameters of a linear layer."""
    yield f"{name}.weight", (outputs, inputs)
    if bias:
        yield f"{name}.bias", (outputs,)
