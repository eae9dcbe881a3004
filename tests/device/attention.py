"""Fused attention of the pseudo device: one operator forward and one backward, as on a GPU, by torch's plain equations.

Nothing is kept between the passes: backward, torch differentiates the forward pass, which is computed again, and
dropout is drawn again from a seed, as flash attention does (Dao, 2023).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def forward(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None, p: float = 0.0, is_causal: bool = False,
    *_: Any, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """softmax(scale q k^T + bias) v as `_scaled_dot_product_fused_attention_overrideable`: (B, H, L, K)."""
    seed = torch.randint(2**31, (), device=query.device)
    out = _attend(query, key, value, bias, p, is_causal, seed, scale)
    nothing = [query.new_empty(0) for _ in range(5)]
    return out, *nothing[:3], query.shape[2], key.shape[2], seed, *nothing[3:]


def backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, wanted: list[bool], *rest: Any,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The gradients by query, key and value; a mask gets none."""
    assert not wanted[3]
    *_, p, is_causal, seed, _ = rest
    gradients = _gradients(grad, (query, key, value), lambda q, k, v: _attend(q, k, v, bias, p, is_causal, seed, scale))
    return *map(_heads_inside, gradients), None


def packed_forward(
    query: Tensor, key: Tensor, value: Tensor, bounds_q: Tensor, bounds_k: Tensor, max_q: int, max_k: int, p: float,
    is_causal: bool, *_: Any, scale: float | None = None, **__: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """torch's attention for rows of different lengths, one behind the other: (N, H, K)."""
    places = [torch.arange(len(x), device=x.device) for x in (query, key)]
    rows = [torch.bucketize(x, b[1:], right=True) for x, b in zip(places, (bounds_q, bounds_k), strict=True)]
    seen = rows[0][:, None] == rows[1]
    if is_causal:
        seen = seen & (places[0][:, None] >= places[1])
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))
    out = _attend(q, k, v, seen, 0.0, False, None, scale)[0].transpose(0, 1)
    return out, *(query.new_empty(0) for _ in range(4))


def packed_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sums: Tensor, *rows: Any,
    scale: float | None = None, **_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Its gradients by query, key and value."""
    gradients = _gradients(grad, (query, key, value), lambda *x: packed_forward(*x, *rows, scale=scale)[0])
    return tuple(x.contiguous() for x in gradients)


def efficient_forward(
    query: Tensor, key: Tensor, value: Tensor, bias: None, bounds_q: Tensor, bounds_k: Tensor, max_q: int, max_k: int,
    p: float, mask_type: int, *_: Any, scale: float | None = None, **__: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """xFormers' attention for such rows, (1, N, H, K)."""
    rows = bounds_q, bounds_k, max_q, max_k, p, mask_type == 1
    out, *nothing = packed_forward(query[0], key[0], value[0], *rows, scale=scale)
    return out[None], *nothing[:3], max_q, max_k


def efficient_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: None, out: Tensor, bounds_q: Tensor,
    bounds_k: Tensor, max_q: int, max_k: int, log_sums: Tensor, p: float, seed: Tensor, offset: Tensor, mask_type: int,
    *_: Any, scale: float | None = None, **__: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Its gradients by query, key and value, and none by a bias."""
    rows = bounds_q, bounds_k, max_q, max_k, p, mask_type == 1
    gradients = packed_backward(grad[0], query[0], key[0], value[0], out[0], log_sums, *rows, scale=scale)
    return *(x[None] for x in gradients), query.new_empty(0)


def _attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, p: float, is_causal: bool, seed: Any,
    scale: float | None,
) -> Tensor:  # fmt: skip
    kept = None
    if p:
        draw = torch.Generator().manual_seed(int(seed))
        kept = torch.rand(*query.shape[:3], key.shape[2], generator=draw) >= p
    if bias is not None and bias.dtype == torch.bool:
        bias = torch.where(bias, 0.0, -torch.inf)
    equations = torch.ops.aten._scaled_dot_product_attention_math
    return _heads_inside(equations(query, key, value, bias, p, is_causal, kept, scale=scale)[0])


def _heads_inside(x_BHLK: Tensor) -> Tensor:
    """Laid out as (B, L, H, K), as the kernels of a GPU leave it: heads are put together without a copy."""
    return x_BHLK.transpose(1, 2).contiguous().transpose(1, 2)


def _gradients(grad: Tensor, inputs: tuple[Tensor, ...], compute: Callable[..., Tensor]) -> tuple[Tensor, ...]:
    clean = torch.overrides.enable_reentrant_dispatch()  # within an operator nothing is recorded
    with clean, torch._C._DisableTorchDispatch(), torch.enable_grad():
        gradients: tuple[Tensor, ...] = torch.func.vjp(compute, *inputs)[1](grad)
    return gradients
