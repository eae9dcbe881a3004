"""notebook_gelu_dk as plain modules."""

import math
from typing import cast

import torch
from torch import Tensor, nn

from tests.model.notebooks.parts import Positional, Sizes, plain_attention


class NarrowAttention(nn.Module):
    causal_mask: Tensor

    def __init__(self, sizes: Sizes, *, is_causal: bool = False) -> None:
        super().__init__()
        width, self.num_heads, self.d_k = sizes["width"], sizes["heads"], sizes["head_width"]
        self.query, self.key, self.value = (nn.Linear(width, self.num_heads * self.d_k) for _ in range(3))
        self.out = nn.Linear(self.num_heads * self.d_k, width)
        self.is_causal = is_causal
        if is_causal:
            self.register_buffer("causal_mask", torch.ones(sizes["length"], sizes["length"]).tril())

    def forward(self, q: Tensor, k: Tensor, v: Tensor, is_real: Tensor) -> Tensor:
        mask = is_real[:, None, None, :]
        if self.is_causal:
            mask = mask & self.causal_mask[: q.shape[1], : q.shape[1]].bool()
        q, k, v = self.query(q), self.key(k), self.value(v)
        heads = plain_attention(q, k, v, mask, self.num_heads, math.sqrt(self.d_k), nn.Identity())
        out: Tensor = self.out(heads)
        return out


def gelu_feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))


class NarrowEncoderBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = NarrowAttention(sizes)
        self.norm1, self.norm2 = nn.LayerNorm(sizes["width"]), nn.LayerNorm(sizes["width"])
        self.ff = gelu_feed_forward(sizes["width"])
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, x, x, is_real))
        x = self.norm2(x + self.ff(x))
        out: Tensor = self.dropout(x)
        return out


class NarrowDecoderBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_1, self.attention_2 = NarrowAttention(sizes, is_causal=True), NarrowAttention(sizes)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(sizes["width"]) for _ in range(3))
        self.ff = gelu_feed_forward(sizes["width"])
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, is_real: Tensor, memory: Tensor, memory_is_real: Tensor) -> Tensor:
        x = self.norm1(x + self.attention_1(x, x, x, is_real))
        x = self.norm2(x + self.attention_2(x, memory, memory, memory_is_real))
        x = self.norm3(x + self.ff(x))
        out: Tensor = self.dropout(x)
        return out


class NarrowStack(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, vocab = sizes["width"], sizes["target_vocab" if is_decoder else "source_vocab"]
        block = NarrowDecoderBlock if is_decoder else NarrowEncoderBlock
        self.embedding = nn.Embedding(vocab, width)
        self.pos_encoding = Positional(width, sizes["length"])
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.transformer_blocks = nn.ModuleList([block(sizes) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(width)
        if is_decoder:
            self.out = nn.Linear(width, vocab)

    def forward(self, ids: Tensor, *memory: Tensor) -> Tensor:
        x = self.pos_encoding(self.embedding(ids))
        for block in self.transformer_blocks:
            x = block(x, ids != 0, *memory)
        x = self.norm(x)
        return cast(Tensor, self.out(x)) if hasattr(self, "out") else x


class NarrowTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = NarrowStack(sizes, is_decoder=False)
        self.decoder = NarrowStack(sizes, is_decoder=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        out: Tensor = self.decoder(target, self.encoder(source), source != 0)
        return out
