"""The base class of training losses."""

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
        """The kind and fields as text. Values of losses with different signatures are not compared."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return " ".join(f"{name}={value}" for name, value in fields)

    def flops(self, width: int, tokens: int, vocabulary: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two."""
        return 2 * tokens * width * vocabulary

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Memory of the output layer and the loss; by default that of torch's own cross-entropy.

        This keeps the hidden states, and all log-probabilities in fp32. The backward pass adds the gradients of the
        log-probabilities, of the logits and of the output matrix.
        """
        logits, hidden = tokens * vocabulary, tokens * width * storage.element
        gradients = logits * (FLOAT + storage.element) + width * vocabulary * storage.element
        return LossBytes(kept=hidden + logits * FLOAT, working=gradients)
