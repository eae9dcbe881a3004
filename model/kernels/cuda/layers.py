"""Layers in passes in which nothing looks into them: their parts are called without torch's way to a module.

That way, two calls for each part and one for each look at an attribute, takes as long on the host as some kernels on
a GPU.
"""

from typing import Any

from torch import Tensor
from typing_extensions import override

from model.kernels.cuda.attention import Attends, CudaAttention
from model.layout import Current
from model.transformer import DecoderLayer, EncoderLayer, LayerCache


class CudaEncoderLayer(EncoderLayer):
    """EncoderLayer for GPUs. `use` of this package sets its attribute."""

    current: Current

    @override
    def forward(self, x_BSD: Tensor, bias: Tensor | None) -> Tensor:
        layout = self.current.layout
        parts: Any = self._modules
        attention = parts["self_attention"]
        if not self.current.is_bare or layout is None or not layout.is_packed or type(attention) is not CudaAttention:
            return super().forward(x_BSD, bias)
        x_BSD = parts["self_attention_residual"].forward(x_BSD, Attends(attention, None))
        out: Tensor = parts["feed_forward_residual"].forward(x_BSD, parts["feed_forward"].forward)
        return out


class CudaDecoderLayer(DecoderLayer):
    """DecoderLayer for GPUs. `use` of this package sets its attribute."""

    current: Current

    @override
    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        layout = self.current.layout
        parts: Any = self._modules
        if not self.current.is_bare or cache is not None or layout is None or not layout.is_packed:
            return super().forward(x_BTD, memory_BSD, memory_bias, cache)
        attention, cross = parts["self_attention"], parts["cross_attention"]
        if type(attention) is not CudaAttention or type(cross) is not CudaAttention:
            return super().forward(x_BTD, memory_BSD, memory_bias, cache)
        x_BTD = parts["self_attention_residual"].forward(x_BTD, Attends(attention, None, is_causal=True))
        x_BTD = parts["cross_attention_residual"].forward(x_BTD, Attends(cross, memory_BSD))
        out: Tensor = parts["feed_forward_residual"].forward(x_BTD, parts["feed_forward"].forward)
        return out
