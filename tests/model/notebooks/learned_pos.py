"""notebook_learned_pos as plain modules."""

import math

import torch
from torch import Tensor, nn

from tests.model.notebooks.parts import Sizes, masks, plain_attention


class WideScaleAttention(nn.Module):
    def __init__(self, width: int, num_heads: int, *, bias: bool = True) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.values, self.keys, self.queries = (nn.Linear(width, width, bias=bias) for _ in range(3))
        self.fc_out = nn.Linear(width, width)

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.queries(query), self.keys(keys), self.values(values)
        heads = plain_attention(q, k, v, mask, self.num_heads, math.sqrt(q.shape[-1]), nn.Identity())
        out: Tensor = self.fc_out(heads)
        return out


class LearnedBlock(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = WideScaleAttention(width, num_heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, value: Tensor, key: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        x = self.dropout(self.norm1(self.attention(value, key, query, mask) + query))
        out: Tensor = self.dropout(self.norm2(self.feed_forward(x) + x))
        return out


class LearnedDecoderBlock(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.attention = WideScaleAttention(width, num_heads)
        self.norm = nn.LayerNorm(width)
        self.transformer_block = LearnedBlock(width, num_heads)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        query = self.dropout(self.norm(self.attention(x, x, x, target_mask) + x))
        out: Tensor = self.transformer_block(memory, memory, query, source_mask)
        return out


class LearnedSide(nn.Module):
    def __init__(self, sizes: Sizes, *, is_decoder: bool) -> None:
        super().__init__()
        width, vocab = sizes["width"], sizes["target_vocab" if is_decoder else "source_vocab"]
        self.word_embedding = nn.Embedding(vocab, width)
        self.position_embedding = nn.Embedding(sizes["length"], width)
        block = LearnedDecoderBlock if is_decoder else LearnedBlock
        num_layers = sizes["decoder_layers" if is_decoder else "encoder_layers"]
        self.layers = nn.ModuleList([block(width, sizes["heads"]) for _ in range(num_layers)])
        self.dropout = nn.Dropout(0.1)
        if is_decoder:
            self.fc_out = nn.Linear(width, vocab)

    def embed(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        out: Tensor = self.dropout(self.word_embedding(ids) + self.position_embedding(positions))
        return out


class LearnedTransformer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.encoder = LearnedSide(sizes, is_decoder=False)
        self.decoder = LearnedSide(sizes, is_decoder=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_mask, target_mask = masks(source, target)
        memory = self.encoder.embed(source)
        for layer in self.encoder.layers:
            memory = layer(memory, memory, memory, source_mask)
        y = self.decoder.embed(target)
        for layer in self.decoder.layers:
            y = layer(y, memory, source_mask, target_mask)
        out: Tensor = self.decoder.fc_out(y)
        return out
