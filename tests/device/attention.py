"""Fused attention of the pseudo device: one operator forward and one backward, as on a GPU, by the plain equations.

It stands for what torch calls `_scaled_dot_product_fused_attention_overrideable`. Only the log of the sums of the
weights' exponentials is kept between the passes, and dropout is drawn again from a seed, as flash attention does (Dao,
2023).
"""

import torch
from torch import Tensor


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | int, ...]:
    """softmax(scale q k^T + bias) v, on the host; see `model.attention.attend` for the shapes.

    Returns:
        What torch's operator does: out (B, H, L, K), the log-sums (B, H, L), three things that nobody needs, the seed
        and offset of dropout, and a mask that nobody needs.
    """
    scores = _scores(query, key, bias, is_causal, scale)
    log_sums = scores.logsumexp(-1)
    seed = torch.randint(2**31, (), dtype=torch.int64, device=query.device)
    weights = (scores - log_sums[..., None]).exp() * _kept(scores, dropout_p, seed)
    nothing = query.new_empty(0)
    lengths = (query.shape[2], key.shape[2])
    out = _heads_inside((weights @ value.float()).to(query.dtype))
    return out, log_sums, nothing, nothing.clone(), *lengths, seed, torch.zeros_like(seed), nothing.clone()


def backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    wanted: list[bool],
    out: Tensor,
    log_sums: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    seed: Tensor,
    offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients by query, key, value and bias; None where `wanted` is not."""
    scores = _scores(query, key, bias, is_causal, scale)
    weights, kept = (scores - log_sums[..., None]).exp(), _kept(scores, dropout_p, seed)
    grad = grad_out.float()
    grad_weights = grad @ value.float().transpose(-1, -2) * kept
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    found = [
        (grad_scores @ key.float() * factor).to(query.dtype),
        (grad_scores.transpose(-1, -2) @ query.float() * factor).to(key.dtype),
        ((weights * kept).transpose(-1, -2) @ grad).to(value.dtype),
        None if bias is None else grad_scores.sum_to_size(bias.shape).to(bias.dtype),
    ]
    found[:3] = [_heads_inside(x) for x in found[:3] if x is not None]
    return tuple(x if want else None for x, want in zip(found, wanted, strict=True))


def packed_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **_: object,
) -> tuple[Tensor, ...]:
    """torch's attention for rows of different lengths, one behind the other, on the host: (N, H, K) and log-sums."""
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    scores = _scores(q, k, _seen(len(query), len(key), bounds_q, bounds_k, is_causal), False, scale)
    log_sums = scores.logsumexp(-1)
    out = ((scores - log_sums[..., None]).exp() @ v.float()).to(query.dtype)
    nothing = query.new_empty(0)
    return out.transpose(0, 1).contiguous(), log_sums, nothing, nothing.clone(), nothing.clone()


def packed_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sums: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    seed: Tensor,
    offset: Tensor,
    *,
    scale: float | None = None,
    **_: object,
) -> tuple[Tensor, ...]:
    """Its gradients by query, key and value."""
    seen = _seen(len(query), len(key), bounds_q, bounds_k, is_causal)
    grad, q, k, v = (x.transpose(0, 1)[None] for x in (grad_out, query, key, value))
    unused, wanted = log_sums, [True, True, True, False]
    found = backward(
        grad, q, k, v, seen, wanted, unused, log_sums[None], unused, unused, 0, 0, 0.0, False, unused, unused,
        scale=scale,
    )  # fmt: skip
    return tuple(x[0].transpose(0, 1).contiguous() for x in found if x is not None)


def efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    bounds_q: Tensor,
    bounds_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    mask_type: int,
    compute_log_sums: bool,
    *,
    scale: float | None = None,
    **_: object,
) -> tuple[Tensor | int, ...]:
    """xFormers' attention for such rows, (1, N, H, K)."""
    rows = query[0], key[0], value[0], bounds_q, bounds_k, max_q, max_k
    found = packed_forward(*rows, dropout_p, mask_type == 1, False, scale=scale)
    return found[0][None], found[1][None], found[2], found[3], max_q, max_k


def efficient_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    bounds_q: Tensor,
    bounds_k: Tensor,
    max_q: int,
    max_k: int,
    log_sums: Tensor,
    dropout_p: float,
    seed: Tensor,
    offset: Tensor,
    mask_type: int,
    *_: object,
    scale: float | None = None,
    **__: object,
) -> tuple[Tensor, ...]:
    """Its gradients by query, key, value and, where there is one, bias."""
    rows = grad_out[0], query[0], key[0], value[0], out[0], log_sums[0], bounds_q, bounds_k, max_q, max_k
    of_rows = packed_backward(*rows, dropout_p, mask_type == 1, seed, offset, scale=scale)
    return *(x[None] for x in of_rows), query.new_empty(0)


def _seen(num_queries: int, num_keys: int, bounds_q: Tensor, bounds_k: Tensor, is_causal: bool) -> Tensor:
    """(N, M): whether a query sees a key."""
    places = [torch.arange(n, device=bounds_q.device) for n in (num_queries, num_keys)]
    rows = [torch.bucketize(x, b[1:], right=True) for x, b in zip(places, (bounds_q, bounds_k), strict=True)]
    seen = rows[0][:, None] == rows[1]
    return seen & (places[0][:, None] >= places[1]) if is_causal else seen


def _heads_inside(x_BHLK: Tensor) -> Tensor:
    """Laid out as (B, L, H, K), as the kernels of a GPU leave it: heads are put together without a copy."""
    return x_BHLK.transpose(1, 2).contiguous().transpose(1, 2)


def _scores(query: Tensor, key: Tensor, bias: Tensor | None, is_causal: bool, scale: float | None) -> Tensor:
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = query.float() * factor @ key.float().transpose(-1, -2)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    if bias is None:
        return scores
    return scores.masked_fill(~bias, -torch.inf) if bias.dtype == torch.bool else scores + bias.float()


def _kept(scores: Tensor, dropout_p: float, seed: Tensor) -> Tensor | float:
    """What dropout multiplies the weights by; the same for the same seed."""
    if dropout_p == 0:
        return 1.0
    if scores.is_meta:
        return torch.empty_like(scores)
    drawn = torch.rand(scores.shape, generator=torch.Generator().manual_seed(int(seed)))
    return (drawn >= dropout_p).float() / (1 - dropout_p)
