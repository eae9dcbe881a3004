"""What is minimised."""

import dataclasses
from typing import Any

from configs.components.model.costs import FLOAT, LossBytes, Storage
from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Loss(Component):
    """The training loss, a function of hidden states and the output matrix."""

    def build(self) -> Any:
        """A function `(hidden_ND, weight_VD, bias_V, targets_N, *, padding_id)` of tensors; see `model.loss.Loss`."""
        raise NotImplementedError

    def signature(self) -> str:
        """What its value depends on; values with different signatures are not compared."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return " ".join(f"{name}={value}" for name, value in fields)

    def flops(self, width: int, tokens: int, vocabulary: int) -> int:
        """FLOPs of the matmuls of a forward pass, counting a multiplication and an addition as two."""
        return 2 * tokens * width * vocabulary

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Bytes held; by default those of torch's own cross-entropy.

        That keeps the hidden states, and all log-probabilities in fp32; in the backward pass there are also their
        gradient, that of the logits, and that of the matrix.
        """
        logits, hidden = tokens * vocabulary, tokens * width * storage.element
        gradients = logits * (FLOAT + storage.element) + width * vocabulary * storage.element
        return LossBytes(kept=hidden + logits * FLOAT, working=gradients)
