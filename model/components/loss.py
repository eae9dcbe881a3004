"""The loss: its fields and costs. The equations: `model.loss`."""

from typing import TYPE_CHECKING

from typing_extensions import override

from configs.components import component
from configs.fields import Probability
from model.parts import FLOAT, Loss, LossBytes, Storage

if TYPE_CHECKING:
    from model.loss import CrossEntropy

ROW_MULTIPLE = 16
"""A chunk has a multiple of so many rows, so that targets and likelihoods begin at multiples of 16 bytes on a GPU."""
CHUNK_BYTES = 1 << 29
"""Bytes of logits at once with the GPU kernels, which need no other buffer: larger chunks mean fewer additions to the
gradient of the output matrix."""
VOCABULARY_MULTIPLE = 64
"""On GPUs the logits are padded to a multiple of this many columns, which tensor cores need."""


def padded_vocabulary(vocab: int) -> int:
    """Columns of the logits on a GPU. The padding exists in memory only; no probability goes to it."""
    return -(-vocab // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def most_rows(columns: int, element: int, limit: int = CHUNK_BYTES) -> int:
    """Most rows of a chunk on a GPU, a multiple of `ROW_MULTIPLE`.

    Args:
        columns: of the logits.
        element: bytes of one.
        limit: bytes of a chunk.
    """
    return max(1, limit // (columns * element * ROW_MULTIPLE)) * ROW_MULTIPLE


@component("loss", "cross_entropy")
class CrossEntropyLoss(Loss):
    """Cross-entropy with label smoothing (Szegedy et al., 2016), computed in chunks of logits."""

    label_smoothing: Probability = 0.1
    """Probability spread over all pieces of the vocabulary (Szegedy et al., 2016), as in torch's cross_entropy."""

    @override
    def build(self) -> "CrossEntropy":
        from model.loss import CrossEntropy

        return CrossEntropy(self.label_smoothing)

    @override
    def signature(self) -> str:
        return f"label smoothing {self.label_smoothing:g}"

    def activation_bytes(
        self, width: int, tokens: int, vocabulary: int, *, has_bias: bool, storage: Storage
    ) -> LossBytes:
        """Memory of `model.kernels.cuda.loss`, which computes the logits of some rows at a time.

        The gradients of the hidden states and (in fp32) of the output matrix are computed in the forward pass and kept.
        Working memory forward: one chunk of logits, overwritten by its gradient; the output matrix with padded
        vocabulary; a copy of the hidden states with zeros at padding; a chunk's gradient of the matrix. Working memory
        backward: the gradient of the matrix.
        """
        element = storage.element
        matrix, hidden = vocabulary * width, tokens * width
        columns = padded_vocabulary(vocabulary)
        rows = most_rows(columns, element)
        half = 0 if element == FLOAT else element
        logits = min(rows, tokens) * columns * element
        padded = columns * width * element if columns != vocabulary else 0
        forward = padded + hidden * element + logits + columns * width * half
        backward = matrix * (FLOAT + half) + hidden * element
        bias = vocabulary * FLOAT if has_bias else 0
        return LossBytes(kept=hidden * element + matrix * FLOAT + bias, working=max(forward, backward))
