"""What the training benchmarks rest on: the plain loop's products, and its weights in our model."""

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.training import plain_model, train, trainers
from configs import UserError, model_section
from model import SpecialIds, Transformer, build_transformer
from model.dropout import Dropout

SIZES: dict[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 24,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "dropout": 0.1,
    "activation_dropout": 0.1,
    "vocab": 31,
}


@pytest.mark.parametrize(("inner", "outer"), [(6, 17), (17, 6)])
def test_the_plain_loops_products(inner: int, outer: int) -> None:
    torch.manual_seed(1)
    x, layer = torch.randn(3, 5, inner, requires_grad=True), plain_model.Linear(inner, outer)
    grad = torch.randn(3, 5, outer)
    found = torch.autograd.grad(layer(x), (x, *layer.parameters()), grad)
    expected = torch.autograd.grad(F.linear(x, layer.weight, layer.bias), (x, *layer.parameters()), grad)
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def our_model() -> Transformer:
    section = model_section(**trainers.our_model(SIZES))
    special = SpecialIds(pad=plain_model.PAD, bos=plain_model.BOS, eos=plain_model.EOS)
    vocab = SIZES["vocab"]
    return build_transformer(section, source_vocab_size=vocab, target_vocab_size=vocab, special=special, seed=1).eval()


def masks(model: nn.Module, *inputs: Tensor) -> list[tuple[torch.Size, int]]:
    """The shape and the probability in 256ths of every mask that a forward pass draws, in order."""
    found: list[tuple[torch.Size, int]] = []

    def note(module: nn.Module, given: tuple[Tensor], _: Tensor) -> None:
        threshold = (
            module.threshold if isinstance(module, plain_model.Dropout) else round(256 * cast(Dropout, module).p)
        )
        if threshold:
            found.append((given[0].shape, threshold))

    for module in model.train().modules():
        if isinstance(module, Dropout | plain_model.Dropout):
            module.register_forward_hook(note)
    model(*inputs)
    return found


def test_the_plain_loop_and_our_model_draw_the_same_masks() -> None:
    """Without the same dropout neither their speed nor what they learn can be compared."""
    source, target = torch.randint(4, SIZES["vocab"], (3, 8)), torch.randint(4, SIZES["vocab"], (3, 16))
    ours, plain = masks(our_model(), source, target), masks(plain_model.Model(SIZES), source, target, target)
    assert ours == plain
    assert len(ours) == 2 + 3 * SIZES["encoder_layers"] + 4 * SIZES["decoder_layers"]


def test_a_program_that_fails_is_left_out() -> None:
    calls: list[str] = []

    def program(name: str, fails_at: int | None = None) -> train.Program:
        def run() -> dict[str, Any]:
            calls.append(name)
            if calls.count(name) == fails_at:
                raise UserError("out of breath")
            return {"tokens_per_second": float(len(calls))}

        return run

    rounds, failed = train.take_turns({"one": program("one"), "two": program("two", 2), "three": program("three")}, 3)
    assert failed == ["two"]
    assert [list(r) for r in rounds] == [["one", "three"]] * 3
    assert calls == ["one", "two", "three", "one", "two", "three", "one", "three"]
    with pytest.raises(UserError, match="all programs failed"):
        train.take_turns({"two": program("two", 3)}, 1)
