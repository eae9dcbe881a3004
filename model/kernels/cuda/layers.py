"""Layers in passes in which nothing looks into them: their parts are called without torch's way to a module.

That way, two calls for each part and one for each look at an attribute, takes as long on the host as some kernels on
a GPU.
"""

from typing import Any

from torch import Tensor
from typing_extensions import override

from model.layout import Current
from model.transformer import DecoderLayer, EncoderLayer, LayerCache


class CudaEncoderLayer(EncoderLayer):
    """EncoderLayer for GPUs. `use` of this package sets its attribute."""

    current: Current

    @override
    def forward(self, x_BSD: Tensor, bias: Tensor | None) -> Tensor:
        if not self.current.is_bare:
            return super().forward(x_BSD, bias)
        parts: dict[str, Any] = self._modules
        attend = parts["self_attention"].forward
        x_BSD = parts["self_attention_residual"].forward(x_BSD, lambda h: attend(h, h, bias))
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
        if not self.current.is_bare or cache is not None or layout is None or not layout.is_packed:
            return super().forward(x_BTD, memory_BSD, memory_bias, cache)
        parts: dict[str, Any] = self._modules
        attend, look = parts["self_attention"].forward, parts["cross_attention"].forward
        x_BTD = parts["self_attention_residual"].forward(x_BTD, lambda h: attend(h, h, is_causal=True))
        x_BTD = parts["cross_attention_residual"].forward(x_BTD, lambda h: look(h, memory_BSD, memory_is_fixed=True))
        out: Tensor = parts["feed_forward_residual"].forward(x_BTD, parts["feed_forward"].forward)
        return out
