"""What is minimised."""

import dataclasses
from typing import Any

from configs.components.model.costs import FLOAT, LossBytes, Storage
from configs.components.registry import Component


@dataclasses.dataclass(kw_only=True, frozen=True)
class Loss(Component):
    """What a model is trained to make small, of hidden states and the matrix that makes logits of them."""

    def build(self) -> Any:
        """A function `(hidden_ND, weight_VD, bias_V, targets_N, *, padding_id)` of tensors; see `model.loss.Loss`."""
        raise NotImplementedError

    def signature(self) -> str:
        """What a figure of it depends on: figures of another one are not compared with it."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return " ".join(f"{name}={value}" for name, value in fields)

    def flops(self, width: int, tokens: int, vocabulary: int) -> int:
        """Of the matmuls of a forward pass, a multiplication and an addition being two."""
        return 2 * tokens * width * vocabulary

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """What is held for the backward pass; unless said otherwise, that of torch's own cross-entropy.

        It keeps the hidden states, and the logarithms of all probabilities in fp32; going backward there are their
        gradient, that of the logits, and that of the matrix.
        """
        logits, hidden = tokens * vocabulary, tokens * width * storage.element
        gradients = logits * (FLOAT + storage.element) + width * vocabulary * storage.element
        return LossBytes(kept=hidden + logits * FLOAT, working=gradients)
