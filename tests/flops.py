"""torch's own count of floating-point operations, with products by oneDNN and attention on a CPU."""

import math
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

Shape = tuple[int, ...]


def flop_counter() -> FlopCounterMode:
    """A mode that counts the products of everything that runs within."""
    aten, by_onednn = torch.ops.aten, torch.ops.mkldnn._linear_pointwise
    counts = {
        by_onednn: _of_linear,
        aten._scaled_dot_product_flash_attention_for_cpu: _of_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _of_gradients,
    }
    return FlopCounterMode(display=False, custom_mapping=counts)


def _of_linear(x: Shape, weight: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weight[0]


def _of_attention(query: Shape, key: Shape, *_: Any, **__: Any) -> int:
    """Two products, of heads as wide as their values."""
    return 2 * 2 * math.prod(query) * key[2]


def _of_gradients(_: Shape, query: Shape, key: Shape, *__: Any, **___: Any) -> int:
    """Four, without the one that it computes again."""
    return 2 * _of_attention(query, key)
