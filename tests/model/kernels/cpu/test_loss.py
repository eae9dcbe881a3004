"""Chunks of the loss on a CPU."""

import pytest
import torch

from model.kernels.cpu import linear as linear_module
from model.kernels.cpu import loss as loss_module
from model.kernels.cpu import use
from model.kernels.cpu.linear import has_onednn
from model.loss import CrossEntropy
from tests.flops import flop_counter
from tests.model.reference import PAD, smoothed_losses
from tests.model.test_loss import VOCAB, WIDTH, make_inputs


@pytest.mark.parametrize("rows_a_chunk", [3, 7, 40, 1000])
def test_chunks_of_one_size_by_onednn(rows_a_chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are filled up with a row that counts as padding; the first one holds no numbers here and is padding."""
    monkeypatch.setattr(linear_module, "_fp32_prefers_onednn", has_onednn())
    monkeypatch.setattr(linear_module, "MIN_ONEDNN_MACS", 1)
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", rows_a_chunk * VOCAB)
    monkeypatch.setattr(loss_module, "MIN_CHUNK_ROWS", 1)
    generator = torch.Generator().manual_seed(4)
    targets = torch.randint(3, VOCAB, (5, 21), generator=generator)
    targets[0, 0] = PAD
    hidden, layer = torch.randn(5, 21, WIDTH, generator=generator), make_inputs()[1]
    use(layer)
    logits = torch.nn.functional.linear(hidden, layer.weight, layer.bias).double()
    wanted = smoothed_losses(logits.flatten(0, 1), targets.flatten(), 0.1)
    hidden[0, 0] = float("nan")
    hidden.requires_grad_()
    found = layer(hidden, targets, CrossEntropy(0.1))
    torch.testing.assert_close([x.double() for x in found], list(wanted), rtol=2e-6, atol=2e-6)
    found[0].backward()
    assert hidden.grad is not None
    assert not hidden.grad[0, 0].any()
    assert hidden.grad.flatten(0, 1)[1:].any(1).all()
    with flop_counter() as counter:
        layer(hidden, targets, CrossEntropy(0.1))
    products = 3 * 2 * WIDTH * VOCAB
    rows = counter.get_total_flops() / products
    assert 104 <= rows <= 104 * 17 / 16
    sizes = loss_module.CPU_STEPS.chunk_rows(104, layer.weight)
    assert rows % sizes == (0 if has_onednn() else 104 % sizes)
