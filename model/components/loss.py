"""The loss: its fields and costs. The equations: `model.loss`."""

from typing import TYPE_CHECKING

from configs.components import component
from configs.components.model import FLOAT, Loss, LossBytes, Storage
from configs.fields import Probability

if TYPE_CHECKING:
    from model.loss import CrossEntropy

CHUNK_ELEMENTS = 1 << 26
"""Logits held at once: 256 MB in fp32, so that a device's launch has enough to do."""


@component("loss", "cross_entropy")
class CrossEntropyLoss(Loss):
    """Cross-entropy with label smoothing (Szegedy et al., 2016), without ever holding all logits."""

    label_smoothing: Probability = 0.1
    """Probability spread over the other pieces (Szegedy et al., 2016)."""

    def build(self) -> "CrossEntropy":
        """See Loss."""
        from model.loss import CrossEntropy

        return CrossEntropy(self.label_smoothing)

    def signature(self) -> str:
        """See Loss."""
        return f"label smoothing {self.label_smoothing:g}"

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Of `model.loss.cross_entropy_sums` on a GPU, which holds the logits of some rows at a time.

        Kept are the gradients of hidden states and of the matrix, formed in the forward pass; the latter in fp32.
        Beside those there are logits of a chunk going forward, or the matrix's gradient going backward.
        """
        element = storage.element
        matrix, hidden = vocabulary * width, tokens * width
        rows = max(1, CHUNK_ELEMENTS // vocabulary)
        chunk = min(rows, tokens) * vocabulary
        # logits, which become their gradient, and their probabilities; from the second chunk on the last one's beside
        half = 0 if element == FLOAT else element
        step = element + FLOAT
        last = half or FLOAT
        forward = max(chunk * (step + (last if tokens > rows else 0)), chunk * last + matrix * half)
        backward = matrix * (FLOAT + half) + hidden * element
        bias = vocabulary * FLOAT if has_bias else 0
        return LossBytes(kept=hidden * element + matrix * FLOAT + bias, working=max(forward, backward))
