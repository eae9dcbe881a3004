"""Where a token stands, added to its embedding."""

import math

import torch
from torch import Tensor, nn


def sinusoidal_table(num_positions: int, width: int, *, base: float = 10000.0) -> Tensor:
    """Sines and cosines of geometrically growing wavelengths (Vaswani et al., 2017, section 3.5), interleaved.

    Returns:
        (num_positions, width) in fp32.
    """
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(base) / width))
    table = torch.empty(num_positions, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table.float()


def check_length(end: int, num_positions: int) -> None:
    """Raise ValueError for a sequence that ends beyond the last position: adding a slice might broadcast instead."""
    if end > num_positions:
        raise ValueError(f"sequence: {end} tokens; allowed is at most max_positions={num_positions}")


class SinusoidalPositions(nn.Module):
    """Adds fixed sinusoids; holds no parameters."""

    table: Tensor

    def __init__(self, num_positions: int, width: int) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.register_buffer("table", sinusoidal_table(num_positions, width), persistent=False)

    def forward(self, x_BLD: Tensor, start: int = 0) -> Tensor:
        """Add the positions start, start + 1, ... to x (B, L, D); ValueError beyond the last."""
        end = start + x_BLD.shape[1]
        check_length(end, self.num_positions)
        return x_BLD + self.table[start:end].to(x_BLD.dtype)


class LearnedPositions(nn.Module):
    """Adds one trained vector for each position (Gehring et al., 2017)."""

    def __init__(self, num_positions: int, width: int) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.weight = nn.Parameter(torch.empty(num_positions, width))
        nn.init.normal_(self.weight, std=width**-0.5)

    def forward(self, x_BLD: Tensor, start: int = 0) -> Tensor:
        """Add the positions start, start + 1, ... to x (B, L, D); ValueError beyond the last."""
        end = start + x_BLD.shape[1]
        check_length(end, self.num_positions)
        return x_BLD + self.weight[start:end]


POSITIONS: dict[str, type[SinusoidalPositions] | type[LearnedPositions]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
}
