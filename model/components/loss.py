"""The loss: its fields and costs. The equations: `model.loss`."""

from typing import TYPE_CHECKING

from configs.components import component
from configs.components.model import FLOAT, Loss, LossBytes, Storage
from configs.fields import Probability

if TYPE_CHECKING:
    from model.loss import CrossEntropy

CHUNK_ELEMENTS = 1 << 26
"""Logits held at once: 256 MB in fp32, so that a device's launch has enough to do."""
CHUNK_BYTES = 1 << 29
"""The same of kernels for GPUs, which hold nothing beside the logits: the matrix's gradient is added up fewer times."""
VOCABULARY_MULTIPLE = 64
"""Columns of a GPU's logits: matmuls of another number would be kept from the tensor cores."""


def padded_vocabulary(vocab: int) -> int:
    """Columns of a GPU's logits, in memory alone."""
    return -(-vocab // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


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
        """Of `model.kernels.cuda.loss`, which holds the logits of some rows at a time.

        Kept are the gradients of hidden states and of the matrix, formed in the forward pass; the latter in fp32.
        Beside those there are, going forward, logits of a chunk, which become their gradient, the matrix in a padded
        vocabulary, hidden states without those of padding and a chunk's gradient of the matrix; going backward, that
        of the matrix.
        """
        element = storage.element
        matrix, hidden = vocabulary * width, tokens * width
        columns = padded_vocabulary(vocabulary)
        rows = max(1, CHUNK_BYTES // (columns * element))
        half = 0 if element == FLOAT else element
        logits = min(rows, tokens) * columns * element
        padded = columns * width * element if columns != vocabulary else 0
        forward = padded + hidden * element + logits + columns * width * half
        backward = matrix * (FLOAT + half) + hidden * element
        bias = vocabulary * FLOAT if has_bias else 0
        return LossBytes(kept=hidden * element + matrix * FLOAT + bias, working=max(forward, backward))
