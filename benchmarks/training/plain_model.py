"""The model of the plain loop: plain torch, without `model` and `trainer`.

A pre-norm Transformer with sinusoids, tied embeddings and label smoothing, optimised for CPUs: fp32 matmuls by oneDNN
where it is faster, one matmul for queries, keys and values, logits of non-padding targets only, and dropout masks from
raw random bytes.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD, BOS, EOS = 0, 1, 2
CPUS = Path("/proc/cpuinfo")
IS_INTEL = CPUS.exists() and "GenuineIntel" in CPUS.read_text(encoding="utf-8", errors="replace")
"""On Intel processors MKL is faster than oneDNN."""


class Dropout(nn.Module):
    """Masks from raw bytes: needs an eighth of the random numbers, with `p` rounded to 1/256."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.threshold = round(256 * p)

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements in training."""
        if not self.training or self.threshold == 0:
            return x
        raw = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        keep = (raw.view(torch.uint8)[: x.numel()].view(x.shape) >= self.threshold).to(x.dtype)
        return x * keep.mul_(256 / (256 - self.threshold))


class OneDnnLinear(torch.autograd.Function):
    """x weight^T + bias in fp32 by oneDNN, which is twice as fast as MKL on non-Intel processors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """(N, I) and (O, I) to (N, O)."""
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _onednn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients; the larger operand of the weight's gradient comes second, which is faster."""
        x, weight = ctx.saved_tensors
        g = grads[0]
        is_wide = weight.shape[0] > weight.shape[1]
        grad_weight = _onednn(x.T, g.T).T if is_wide else _onednn(g.T, x.T)
        return _onednn(g, weight.T), grad_weight, g.sum(0) if ctx.has_bias else None


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(..., I) to (..., O)."""
    if x.dtype != torch.float32 or x.device.type != "cpu" or IS_INTEL:
        return F.linear(x, weight, bias)
    out: Tensor = OneDnnLinear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return out.view(*x.shape[:-1], -1)


class Linear(nn.Linear):
    """`nn.Linear` that uses `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        return linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """Self-attention with one matmul for all projections, or cross-attention with two."""

    def __init__(self, width: int, heads: int, *, is_self: bool) -> None:
        super().__init__()
        self.heads, self.is_self = heads, is_self
        self.query = Linear(width, 3 * width if is_self else width)
        self.memory = None if is_self else Linear(width, 2 * width)
        self.out = Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None, bias: Tensor) -> Tensor:
        """(B, L, D) to (B, L, D), attending to itself or to a memory (B, S, D)."""
        if self.memory is None or memory is None:
            q, k, v = self.query(x).chunk(3, -1)
        else:
            q, (k, v) = self.query(x), self.memory(memory).chunk(2, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + bias
        out: Tensor = self.out(torch.matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """x + dropout(sublayer(norm(x))) for two or three sub-layers."""

    def __init__(
        self, width: int, heads: int, inner: int, dropout: float, inner_dropout: float, *, is_decoder: bool
    ) -> None:
        super().__init__()
        self.attentions = nn.ModuleList([Attention(width, heads, is_self=True)])
        if is_decoder:
            self.attentions.append(Attention(width, heads, is_self=False))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if is_decoder else 2)])
        self.inner, self.outer = Linear(width, inner), Linear(inner, width)
        self.dropout, self.inner_dropout = Dropout(dropout), Dropout(inner_dropout)

    def forward(self, x: Tensor, own_bias: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """(B, L, D) to (B, L, D)."""
        x = x + self.dropout(self.attentions[0](self.norms[0](x), None, own_bias))
        if memory is not None:
            x = x + self.dropout(self.attentions[1](self.norms[1](x), memory, bias))
        hidden = self.inner_dropout(F.relu(self.inner(self.norms[-1](x))))
        out: Tensor = x + self.dropout(self.outer(hidden))
        return out


class Model(nn.Module):
    """Encoder and decoder with one matrix for both embeddings and the output."""

    positions: Tensor

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        width, dropout = sizes["d_model"], sizes["dropout"]
        common = (width, sizes["num_heads"], sizes["d_ff"], dropout, sizes["activation_dropout"])
        self.embedding = nn.Embedding(sizes["vocab"], width)
        self.encoder = nn.ModuleList([Layer(*common, is_decoder=False) for _ in range(sizes["encoder_layers"])])
        self.decoder = nn.ModuleList([Layer(*common, is_decoder=True) for _ in range(sizes["decoder_layers"])])
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dropout = Dropout(dropout)
        self.register_buffer("positions", sinusoids(1024, width))
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.apply(initialise)

    def embed(self, ids: Tensor) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        out: Tensor = self.dropout(x + self.positions[: ids.shape[1]])
        return out

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S) ids to memory (B, S, D) and the bias (B, 1, 1, S) that masks its padding."""
        x = self.embed(source)
        bias = torch.zeros(source.shape, dtype=x.dtype).masked_fill_(source == PAD, -1e9)[:, None, None]
        for layer in self.encoder:
            x = layer(x, bias)
        return self.norms[0](x), bias

    def decode(self, target: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        """(B, T) ids to hidden states (B, T, D)."""
        x = self.embed(target)
        future = torch.full((target.shape[1], target.shape[1]), -1e9, dtype=x.dtype).triu_(1)
        for layer in self.decoder:
            x = layer(x, future, memory, bias)
        out: Tensor = self.norms[1](x)
        return out

    def forward(self, source: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        """Label-smoothed cross-entropy summed over the non-padding labels."""
        hidden = self.decode(target, *self.encode(source)).flatten(0, 1)
        rows = (labels.flatten() != PAD).nonzero()[:, 0]
        logits = linear(hidden.index_select(0, rows), self.embedding.weight)
        return F.cross_entropy(logits, labels.flatten().index_select(0, rows), reduction="sum", label_smoothing=0.1)


def initialise(module: nn.Module) -> None:
    """Xavier-uniform matrices and zero biases; joined projections are initialised separately."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, Attention):
        for fused in filter(None, (module.query, module.memory)):
            for matrix in fused.weight.detach().view(-1, fused.in_features, fused.in_features):
                nn.init.xavier_uniform_(matrix)


def sinusoids(length: int, width: int) -> Tensor:
    """Sinusoidal positions (length, width) (Vaswani et al., 2017)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
