"""Positions against the paper's formula."""

import torch

from model.positions import sinusoidal_table
from tests.model.reference import sinusoid


def test_table_is_the_formula() -> None:
    expected = torch.tensor([sinusoid(position, 10) for position in range(1024)])
    torch.testing.assert_close(sinusoidal_table(1024, 10), expected, rtol=0, atol=1e-6)
