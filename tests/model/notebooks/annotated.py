"""notebook_annotated_fr as plain modules."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.model.notebooks.parts import Positional, Projection, ScaledEmbedding, Sizes, masks, plain_attention


class VectorNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / torch.sqrt(std**2 + 1e-6) + self.b_2


class Sublayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = VectorNorm(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out


class ListAttention(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linears = nn.ModuleList([nn.Linear(width, width) for _ in range(4)])
        self.dropout = nn.Dropout(0.1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (linear(x) for linear, x in zip(list(self.linears)[:3], (q, k, v), strict=True))
        divisor = math.sqrt(q.shape[-1] // self.num_heads)
        out: Tensor = self.linears[3](plain_attention(q, k, v, mask, self.num_heads, divisor, self.dropout))
        return out


class LinearFeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.w_2(self.dropout(self.w_1(x)))
        return out


class AnnotatedLayer(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, num_heads = sizes["width"], sizes["heads"]
        self.self_attn = ListAttention(width, num_heads)
        if is_decoder:
            self.src_attn = ListAttention(width, num_heads)
        self.feed_forward = LinearFeedForward(width, sizes["inner"])
        self.sublayer = nn.ModuleList([Sublayer(width) for _ in range(3 if is_decoder else 2)])

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        x = self.sublayer[0](x, lambda h: self.self_attn(h, h, h, mask))
        if memory is not None:
            x = self.sublayer[1](x, lambda h: self.src_attn(h, memory, memory, memory_mask))
        out: Tensor = self.sublayer[-1](x, self.feed_forward)
        return out


class AnnotatedStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList([AnnotatedLayer(sizes, is_decoder=is_decoder) for _ in range(num_layers)])
        self.norm = VectorNorm(sizes["width"])

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *context)
        out: Tensor = self.norm(x)
        return out


class AnnotatedTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, length = sizes["width"], sizes["length"]
        self.encoder = AnnotatedStack(sizes, is_decoder=False)
        self.decoder = AnnotatedStack(sizes, is_decoder=True)
        self.src_embed = nn.Sequential(ScaledEmbedding(sizes["source_vocab"], width, "lut"), Positional(width, length))
        self.tgt_embed = nn.Sequential(ScaledEmbedding(sizes["target_vocab"], width, "lut"), Positional(width, length))
        self.generator = Projection(width, sizes["target_vocab"])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder(self.src_embed(source), source_mask)
        out: Tensor = self.generator(self.decoder(self.tgt_embed(target), target_mask, memory, source_mask))
        return out
