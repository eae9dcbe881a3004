"""Positions: added to the embeddings, or applied as rotations to queries and keys of self-attention."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override


def sinusoidal_table(
    num_positions: int, width: int, *, base: float = 10000.0, layout: str = "interleaved", offset: int = 0
) -> Tensor:
    """Sines and cosines of geometrically growing wavelengths (Vaswani et al., 2017, section 3.5).

    Args:
        num_positions, width: shape of the table.
        base: the frequencies are base^(-2i / width), for i from 0 to width / 2 - 1.
        layout: interleaved (sine, cosine, sine ...), halves (all sines, then all cosines), or tensor2tensor: halves
            with the frequencies base^(-i / (width / 2 - 1)).
        offset: the number of the first position.

    Returns:
        (num_positions, width) in fp32.
    """
    half = width // 2
    steps = max(half - 1, 1) if layout == "tensor2tensor" else half
    position = torch.arange(offset, offset + num_positions, dtype=torch.float64)[:, None]
    angle = position * torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(base) / steps))
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1 if layout == "interleaved" else 1)
    return waves.flatten(1).float()


def rows_at(table_PW: Tensor, start: int | Tensor, length: int) -> Tensor:
    """Rows (L, ...) of a table (P, ...): `length` rows from an integer `start` on, or the rows numbered `start` (L)."""
    return table_PW[start : start + length] if isinstance(start, int) else F.embedding(start, table_PW)


def check_length(start: int | Tensor, length: int, num_positions: int) -> None:
    """Raise ValueError for a sequence that ends beyond the last position; a slice of the table might broadcast.

    Explicit positions are checked by the caller.
    """
    if isinstance(start, int) and start + length > num_positions:
        raise ValueError(f"sequence: {start + length} tokens exceed max_positions={num_positions}")


class SinusoidalPositions(nn.Module):
    """Adds fixed sinusoids; has no parameters. See `sinusoidal_table`."""

    table: Tensor

    def __init__(
        self, num_positions: int, width: int, *, base: float = 10000.0, layout: str = "interleaved", offset: int = 0
    ) -> None:
        super().__init__()
        self.num_positions = num_positions
        table = sinusoidal_table(num_positions, width, base=base, layout=layout, offset=offset)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x_BLD: Tensor, start: int | Tensor = 0) -> Tensor:
        """Add positions start, start + 1, ... or the given ones (L) to x (B, L, D); ValueError beyond the last one."""
        check_length(start, x_BLD.shape[1], self.num_positions)
        return x_BLD + rows_at(self.table, start, x_BLD.shape[1]).to(x_BLD.dtype)


class LearnedPositions(nn.Module):
    """Adds a trained vector for each position (Gehring et al., 2017).

    Args:
        num_positions: longest sequence.
        width: of the model.
        offset: unused rows of the table before the first position.
    """

    def __init__(self, num_positions: int, width: int, *, offset: int = 0) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(offset + num_positions, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    @override
    def forward(self, x_BLD: Tensor, start: int | Tensor = 0) -> Tensor:
        check_length(start, x_BLD.shape[1], self.num_positions)
        return x_BLD + rows_at(self.weight, self.offset + start, x_BLD.shape[1])


class NoPositions(nn.Module):
    """Adds nothing; only checks the length, as the others do."""

    def __init__(self, num_positions: int) -> None:
        super().__init__()
        self.num_positions = num_positions

    def forward(self, x_BLD: Tensor, start: int | Tensor = 0) -> Tensor:
        """Returns x (B, L, D) unchanged; ValueError beyond the last position."""
        check_length(start, x_BLD.shape[1], self.num_positions)
        return x_BLD


class Rotation(nn.Module):
    """Rotary positions (Su et al., 2021, equation 34).

    Rotates each pair of neighbouring elements by an angle proportional to the position, so that the score of a query
    and a key depends on their distance.

    Args:
        num_positions: longest sequence.
        width: of a head, even.
        base: pair i at position p is rotated by the angle p * base^(-2i / width).
    """

    table: Tensor

    def __init__(self, num_positions: int, width: int, *, base: float) -> None:
        super().__init__()
        table = sinusoidal_table(num_positions, width, base=base).view(num_positions, width // 2, 2)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x_BHLK: Tensor, start: int | Tensor = 0) -> Tensor:
        """Rotate queries or keys (B, H, L, K) at positions start, start + 1, ..., or at the positions `start` (L)."""
        table_LP2 = rows_at(self.table.flatten(1), start, x_BHLK.shape[2]).view(-1, *self.table.shape[1:])
        sine, cosine = table_LP2.to(x_BHLK.dtype).unbind(-1)  # (L, K / 2) each
        even, odd = x_BHLK[..., 0::2], x_BHLK[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)
