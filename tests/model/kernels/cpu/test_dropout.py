"""The noise of a CPU's dropout."""

import pytest
import torch

from model.kernels.cpu.training import CpuDropout, rounded


def test_elements_are_independent() -> None:
    """Four come from one draw: neither neighbours nor the parts of a word may go together."""
    torch.manual_seed(5)
    kept = (CpuDropout(0.5).train()(torch.ones(1 << 17)) != 0).float().view(-1, 8)
    correlation = torch.corrcoef(kept.T) - torch.eye(8)
    assert correlation.abs().max() < 5 / len(kept) ** 0.5


@pytest.mark.parametrize("p", [1e-9, 0.001, 0.1, 0.49, 0.5, 0.51, 0.9, 0.995])
@pytest.mark.parametrize("flushes", [True, False])
def test_the_share_of_a_threshold_is_what_a_processor_finds(p: float, flushes: bool) -> None:
    """Of all bit patterns, also where numbers next to 0 are taken for 0."""
    every = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16)
    threshold, share = rounded(p)
    torch.set_flush_denormal(flushes)
    try:
        for noise in (every, every.float()):
            kept = torch.ops.aten.threshold_backward(torch.ones_like(noise), noise, threshold)
            assert (kept == 0).double().mean().item() == share
    finally:
        torch.set_flush_denormal(False)
    assert 0 < share < 1
    assert share == pytest.approx(max(p, 2**-16), abs=2**-9 if 0.49 < p < 0.51 else 2**-8 if p > 0.99 else 2**-17)
