"""notebook_postnorm_es and notebook_prenorm_viz as plain modules."""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from tests.model.notebooks.parts import Positional, Projection, ScaledEmbedding, Sizes, masks, plain_attention


class ScalarNorm(nn.Module):
    def __init__(self, bias_name: str, initial_bias: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1))
        self.bias_name = bias_name
        self.register_parameter(bias_name, nn.Parameter(torch.full((1,), initial_bias)))

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return cast(Tensor, self.alpha * (x - mean) / (std + 1e-6) + getattr(self, self.bias_name))


class Connection(nn.Module):
    def __init__(self, *, is_pre: bool) -> None:
        super().__init__()
        self.is_pre = is_pre
        self.norm = ScalarNorm("bias", 0.0) if is_pre else ScalarNorm("beta", 1.0)
        self.dropout = nn.Dropout(0.5 if is_pre else 0.1)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.is_pre:
            return x + cast(Tensor, self.dropout(sublayer(self.norm(x))))
        return cast(Tensor, self.dropout(self.norm(x + sublayer(x))))


class BlockAttention(nn.Module):
    def __init__(self, width: int, num_heads: int, *, bias: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.w_o = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.w_q(q), self.w_k(k), self.w_v(v)
        divisor = math.sqrt(q.shape[-1] // self.num_heads)
        out: Tensor = self.w_o(plain_attention(q, k, v, mask, self.num_heads, divisor, self.dropout))
        return out


class BlockFeedForward(nn.Module):
    def __init__(self, width: int, inner: int, first: str) -> None:
        super().__init__()
        self.first = first
        self.add_module(first, nn.Linear(width, inner))
        self.linear_2 = nn.Linear(inner, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear_2(self.dropout(torch.relu(getattr(self, self.first)(x))))
        return out


class BlockLayer(nn.Module):
    def __init__(self, sizes: Sizes, *, is_pre: bool, is_decoder: bool) -> None:
        super().__init__()
        width, num_heads = sizes["width"], sizes["heads"]
        self.self_attention_block = BlockAttention(width, num_heads, bias=is_pre)
        if is_decoder:
            self.cross_attention_block = BlockAttention(width, num_heads, bias=is_pre)
        self.feed_forward_block = BlockFeedForward(width, sizes["inner"], "linear_l" if is_pre else "linear_1")
        count = 3 if is_decoder else 2
        self.residual_connections = nn.ModuleList([Connection(is_pre=is_pre) for _ in range(count)])

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        connections = list(self.residual_connections)
        x = connections[0](x, lambda h: self.self_attention_block(h, h, h, mask))
        if memory is not None:
            x = connections[1](x, lambda h: self.cross_attention_block(h, memory, memory, memory_mask))
        out: Tensor = connections[-1](x, self.feed_forward_block)
        return out


class BlockStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_pre: bool, is_decoder: bool) -> None:
        super().__init__()
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList(
            [BlockLayer(sizes, is_pre=is_pre, is_decoder=is_decoder) for _ in range(num_layers)]
        )
        if is_pre:
            self.norm = ScalarNorm("bias", 0.0)

    def forward(self, x: Tensor, *context: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *context)
        return cast(Tensor, self.norm(x)) if hasattr(self, "norm") else x


class BlockTransformer(nn.Module):
    """Post-norm as in notebook_postnorm_es, pre-norm as in notebook_prenorm_viz."""

    def __init__(self, sizes: Sizes, *, is_pre: bool) -> None:
        super().__init__()
        width, base = sizes["width"], 10000.0 if is_pre else 1000.0
        self.encoder = BlockStack(sizes, is_pre=is_pre, is_decoder=False)
        self.decoder = BlockStack(sizes, is_pre=is_pre, is_decoder=True)
        self.src_embed = ScaledEmbedding(sizes["source_vocab"], width, "embedding")
        self.tgt_embed = ScaledEmbedding(sizes["target_vocab"], width, "embedding")
        self.src_pos = Positional(width, sizes["length"], base)
        self.tgt_pos = Positional(width, sizes["length"], base)
        self.projection_layer = Projection(width, sizes["target_vocab"])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder(self.src_pos(self.src_embed(source)), source_mask)
        y = self.decoder(self.tgt_pos(self.tgt_embed(target)), target_mask, memory, source_mask)
        out: Tensor = self.projection_layer(y)
        return out
