"""Each option of the model against the equations, alone and together with others."""

from typing import Any

import pytest
import torch

from model import Objective, build_transformer
from model.loss import CrossEntropy
from model.sublayers import Dropout
from tests.model.reference import (
    BOS,
    SOURCES,
    SPECIAL,
    TARGET_INPUTS,
    TARGETS,
    PlainTransformer,
    logits_of,
    pad,
    smoothed_losses,
    tiny_model,
    tiny_section,
)  # fmt: skip
from tests.model.variants import MODELS

each_model = pytest.mark.parametrize("option", MODELS, ids=range(len(MODELS)))


@each_model
def test_loss_and_gradients_are_those_of_the_equations(option: dict[str, Any]) -> None:
    """Through the chunked loss, of every weight, tied ones included, and of rows of several lengths."""
    section = tiny_section(**option)
    model = tiny_model(section, target_vocab=13 if section.tied_embeddings == "three-way" else 14)
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
        torch.testing.assert_close(parameter.grad.double(), expected, rtol=1e-4, atol=2e-5, msg=name)


@each_model
def test_search_steps_are_the_full_decode(option: dict[str, Any]) -> None:
    """With the cache, and after rows were chosen anew in the middle."""
    model = tiny_model(tiny_section(**option))
    source, target = pad(SOURCES), torch.tensor([[BOS, 6, 5, 11, 9], [BOS, 7, 7, 3, 12], [BOS, 4, 8, 8, 10]])
    rows = torch.tensor([2, 0, 0])
    with torch.no_grad():
        expected = torch.log_softmax(logits_of(model, source, target), dim=-1)
        state = model.start(source)
        for t in range(target.shape[1]):
            if t == 3:
                state.select(rows, rows)
                target, expected = target[rows], expected[rows]
            torch.testing.assert_close(model.step(target[:, t], state), expected[:, t], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(("given", "rate"), [(None, 0.4), (0.0, 0.0), (0.2, 0.2)])
def test_dropouts_by_place(given: float | None, rate: float) -> None:
    section = tiny_section(dropout=0.4, embedding_dropout=given, attention_dropout=0.1, activation_dropout=0.3)
    model = build_transformer(section, source_vocab_size=9, target_vocab_size=9, special=SPECIAL, seed=1)
    rates = {name: module.p for name, module in model.named_modules() if isinstance(module, Dropout)}
    assert rates.pop("source_embedding.dropout") == rates.pop("target_embedding.dropout") == rate
    ends = {"attention.dropout": 0.1, "feed_forward.dropout": 0.3, "residual.dropout": 0.4}
    assert len(rates) == 2 * 4 + 2 * 6
    assert all(p == next(rate for end, rate in ends.items() if name.endswith(end)) for name, p in rates.items())


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
def test_more_positions_than_there_are_is_refused(positions: str) -> None:
    """As many tokens as there are positions are read on either side, and one more is refused."""
    model = tiny_model(tiny_section(positions=positions, max_positions=4))
    longest, longer = torch.full((1, 4), 5), torch.full((1, 5), 5)
    model(longest, longest)
    message = "5 tokens exceed max_positions=4"
    with pytest.raises(ValueError, match=message):
        model(longer, longest)
    with pytest.raises(ValueError, match=message):
        model(longest, longer)
    state = model.start(longest)
    for _ in range(4):
        model.step(torch.tensor([5]), state)
    with pytest.raises(ValueError, match=message):
        model.step(torch.tensor([5]), state)


def test_norms_of_a_constant_have_finite_gradients() -> None:
    for norm in ("layer", "rms", "scalar", "sample"):
        model = build_transformer(
            tiny_section(norm=norm), source_vocab_size=9, target_vocab_size=9, special=SPECIAL, seed=1
        )
        x = torch.full((2, 12), 3.0, requires_grad=True)
        model.encoder.norm(x).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all(), norm
