"""The feed-forward sub-layer with ReLU fused into its first matmul."""

from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.feed_forward import FeedForward
from model.kernels.cuda.linear import FirstLinear


class CudaFeedForward(FeedForward):
    """FeedForward for GPUs."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner
        if self.activation is not F.relu or not isinstance(inner, FirstLinear):
            return super().forward(x)
        inner.applies_relu = True
        try:
            hidden = inner(x)
        finally:
            inner.applies_relu = False
        out: Tensor = self.outer(self.dropout(hidden))
        return out
