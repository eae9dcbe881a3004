"""The loss on a GPU: one kernel computes the likelihoods and the gradient of the logits.

It reads the logits twice and writes them once: 6 bytes of memory traffic for a 16-bit logit, besides the matmuls; the
plain operators take some 40.
"""

from typing import Any

from torch import Tensor
from typing_extensions import override

from model import loss
from model.components.loss import CHUNK_BYTES, ROW_MULTIPLE, most_rows, padded_vocabulary
from model.kernels.cuda.operators import define

cross_entropy_ = define(
    "cross_entropy_(Tensor(a!) logits, Tensor targets, Tensor(b!) losses, int vocab, int padding_id, float smoothing, "
    "bool with_grad, Tensor? gradient_scale=None, Tensor? scales=None) -> ()",
    loss.cross_entropy_,
    launches=1,
)


class CudaLossSteps(loss.LossSteps):
    """The loss by the operator `zeromt::cross_entropy_`, with a padded vocabulary."""

    @override
    def chunk_rows(self, num_rows: int, weight_PD: Tensor) -> int:
        return chunk_rows(num_rows, len(weight_PD), weight_PD.element_size())

    @override
    def padded(self, x: Tensor) -> Tensor:
        """A copy, or `x` itself if nothing is missing."""
        vocab, rows = x.shape[0], padded_vocabulary(x.shape[0])
        if rows == vocab:
            return x
        out = x.new_empty((rows, *x.shape[1:]))
        out[:vocab] = x
        out[vocab:] = 0
        return out

    @override
    def cross_entropy_(self, *given: Any) -> None:
        cross_entropy_(*given)


def chunk_rows(num_rows: int, num_columns: int, element: int) -> int:
    """Rows of a chunk, so that all chunks have about the same size."""
    num_chunks = max(1, -(-num_rows // most_rows(num_columns, element, CHUNK_BYTES)))
    return max(1, -(-num_rows // (num_chunks * ROW_MULTIPLE))) * ROW_MULTIPLE


CUDA_STEPS = CudaLossSteps()
