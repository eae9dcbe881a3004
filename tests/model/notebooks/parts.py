"""What the plain modules of several notebooks share."""

import math
from typing import cast

import torch
from torch import Tensor, nn

Sizes = dict[str, int]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], num_heads, x.shape[2] // num_heads).transpose(1, 2)


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, num_heads: int, divisor: float, dropout: nn.Module
) -> Tensor:
    """Heads side by side again; the mask is True where attention may look."""
    q, k, v = (split_heads(x, num_heads) for x in (q, k, v))
    scores = (q @ k.transpose(-2, -1) / divisor).masked_fill(~mask, -1e9)
    return cast(Tensor, dropout(scores.softmax(-1)) @ v).transpose(1, 2).flatten(2)


def table(length: int, width: int, base: float = 10000.0) -> Tensor:
    """(1, length, width), element by element."""
    rows = []
    for position in range(length):
        row = []
        for i in range(0, width, 2):
            angle = position / base ** (i / width)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return torch.tensor([rows])


class Positional(nn.Module):
    pe: Tensor

    def __init__(self, width: int, length: int, base: float = 10000.0) -> None:
        super().__init__()
        self.register_buffer("pe", table(length, width, base))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dropout(x + self.pe[:, : x.shape[1]])
        return out


class ScaledEmbedding(nn.Module):
    def __init__(self, vocab: int, width: int, name: str) -> None:
        super().__init__()
        self.width, self.name = width, name
        self.add_module(name, nn.Embedding(vocab, width))

    def forward(self, ids: Tensor) -> Tensor:
        return cast(Tensor, getattr(self, self.name)(ids) * math.sqrt(self.width))


class Projection(nn.Module):
    def __init__(self, width: int, vocab: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, vocab)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.proj(x), dim=-1)


def masks(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Padding (0) of the source (B, 1, 1, S), and the future (T, T); True where attention may look."""
    length = target.shape[1]
    return (source != 0)[:, None, None, :], torch.ones(length, length).tril().bool()
