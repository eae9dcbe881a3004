"""Positions against the paper's formula."""

import torch

from model.positions import LearnedPositions, SinusoidalPositions, sinusoidal_table
from tests.model.reference import sinusoid


def test_table_is_the_formula() -> None:
    expected = torch.tensor([sinusoid(position, 10) for position in range(1024)])
    torch.testing.assert_close(sinusoidal_table(1024, 10), expected, rtol=0, atol=1e-6)


def test_start_shifts() -> None:
    for positions in (SinusoidalPositions(8, 6), LearnedPositions(8, 6)):
        zeros = torch.zeros(2, 5, 6)
        torch.testing.assert_close(positions(zeros)[:, 3:], positions(zeros[:, :2], 3), rtol=0, atol=0)


def test_bf16_stays_bf16() -> None:
    assert SinusoidalPositions(8, 6)(torch.zeros(1, 5, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16
