"""A model held against the equations of `reference.py`: its logits, its gradients, its longest sequence."""

import pytest
import torch

from configs import ModelSection
from model import Objective, Transformer
from model.loss import CrossEntropy
from tests.model.reference import BOS, EOS, PlainTransformer, logits_of, pad, smoothed_losses, tiny_model

SOURCES = [[5, 9, 3, 12, 7, EOS], [4, EOS], [11, 3, 3, EOS]]
TARGETS = [[6, 5, EOS], [10, 4, 8, 12, EOS], [EOS]]
TARGET_INPUTS = [[BOS, *row[:-1]] for row in TARGETS]


def check_logits(model: Transformer, section: ModelSection, *, targets: list[list[int]] = TARGET_INPUTS) -> None:
    """Of rows of several lengths in one padded batch."""
    plain = PlainTransformer.of(model, section)
    with torch.no_grad():
        logits = logits_of(model, pad(SOURCES, width=8), pad(targets))
        for row, (source, target) in enumerate(zip(SOURCES, targets, strict=True)):
            expected = plain.logits(source, target)
            torch.testing.assert_close(logits[row, : len(target)].double(), expected, rtol=0, atol=1e-5)


def check_gradients(section: ModelSection, *, atol: float = 1e-5) -> None:
    """Through the chunked loss, of every weight, tied ones included."""
    model = tiny_model(section)
    plain = PlainTransformer.of(model, section)
    out = Objective(model, CrossEntropy(0.1))(pad(SOURCES), pad(TARGET_INPUTS), pad(TARGETS))
    out.loss_sum.backward()
    logits = torch.cat([plain.logits(s, t) for s, t in zip(SOURCES, TARGET_INPUTS, strict=True)])
    loss, nll = smoothed_losses(logits, torch.tensor([token for row in TARGETS for token in row]), 0.1)
    torch.autograd.backward(loss)
    assert out.loss_sum.item() == pytest.approx(loss.item(), rel=1e-6)
    assert out.nll_sum.item() == pytest.approx(nll.item(), rel=1e-6)
    for name, parameter in model.named_parameters():
        expected = plain.weights[name].grad
        assert parameter.grad is not None, name
        assert expected is not None, name
        torch.testing.assert_close(parameter.grad.double(), expected, rtol=1e-4, atol=atol, msg=name)


def check_longest(section: ModelSection) -> None:
    """As many tokens as there are positions are read on either side, and one more is refused."""
    model = tiny_model(section)
    most = section.max_positions
    longest, longer = torch.full((1, most), 5), torch.full((1, most + 1), 5)
    model(longest, longest)
    message = f"{most + 1} tokens exceed max_positions={most}"
    with pytest.raises(ValueError, match=message):
        model(longer, longest)
    with pytest.raises(ValueError, match=message):
        model(longest, longer)
    state = model.start(longest)
    for _ in range(most):
        model.step(torch.tensor([5]), state)
    with pytest.raises(ValueError, match=message):
        model.step(torch.tensor([5]), state)
