"""torch's own count of floating-point operations, with the products that go to oneDNN."""

import math
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode


def flop_counter() -> FlopCounterMode:
    """A mode that counts the products of everything that runs within."""
    return FlopCounterMode(display=False, custom_mapping={torch.ops.mkldnn._linear_pointwise: _of_linear})


def _of_linear(x: tuple[int, ...], weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * weight[0]
