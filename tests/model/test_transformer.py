"""The whole model: what holds for all of its options."""

import pytest
import torch
from torch import Tensor

from model import Objective, build_transformer
from model.loss import CrossEntropy
from tests.model.reference import (
    BOS,
    EOS,
    PAD,
    SOURCES,
    SPECIAL,
    TARGET_INPUTS,
    logits_of,
    pad,
    tiny_model,
    tiny_section,
)  # fmt: skip


def test_a_row_does_not_depend_on_its_batch() -> None:
    model = tiny_model(tiny_section())
    with torch.no_grad():
        together = logits_of(model, pad(SOURCES, width=14), pad(TARGET_INPUTS, width=9))
        for row, (source, target) in enumerate(zip(SOURCES, TARGET_INPUTS, strict=True)):
            alone = logits_of(model, pad([source]), pad([target]))
            torch.testing.assert_close(together[row, : len(target)], alone[0], rtol=0, atol=1e-5)


def test_a_position_does_not_see_the_future() -> None:
    model = tiny_model(tiny_section())
    with torch.no_grad():
        one, other = logits_of(model, pad([[5, EOS]] * 2), torch.tensor([[BOS, 4, 5, 6], [BOS, 4, 7, 9]]))
    torch.testing.assert_close(one[:2], other[:2], rtol=0, atol=0)
    assert not torch.equal(one[2], other[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_of_padding_alone_gives_no_nan(dtype: torch.dtype) -> None:
    """Ranks of a dry lane train on such a batch, at a weight of zero."""
    model = tiny_model(tiny_section()).to(dtype)
    out = Objective(model, CrossEntropy(0.1))(*(torch.full((1, 3), PAD) for _ in range(3)))
    out.loss_sum.backward()
    assert out.loss_sum.item() == 0
    assert out.nll_sum.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


class TestParameters:
    """Counted by hand from the paper's table 3, and once each however many names they have."""

    @pytest.mark.parametrize(
        ("tying", "names"),
        [
            ("three-way", ["source_embedding.tokens.weight"]),
            ("decoder", ["source_embedding.tokens.weight", "target_embedding.tokens.weight"]),
            ("none", ["source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight"]),
        ],
    )
    def test_tied_matrices_are_one(self, tying: str, names: list[str]) -> None:
        model = tiny_model(tiny_section(tied_embeddings=tying))
        matrices = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
        assert [n for n, _ in model.named_parameters() if n in matrices] == names
        storages = {model.state_dict()[n].data_ptr() for n in matrices}
        assert len(storages) == len(names)
        assert len({id(p) for p in model.parameters()}) == len(list(model.named_parameters()))

    def test_positions_that_are_computed_are_not_saved(self) -> None:
        saved = tiny_model(tiny_section()).state_dict()
        assert not [name for name in saved if "positions" in name]


class TestBuild:
    def build(self, seed: int) -> dict[str, Tensor]:
        section = tiny_section(positions="learned", tied_embeddings="none")
        return build_transformer(
            section, source_vocab_size=13, target_vocab_size=11, special=SPECIAL, seed=seed
        ).state_dict()

    def test_weights_depend_on_the_seed_alone(self) -> None:
        torch.manual_seed(1)
        one = self.build(7)
        torch.rand(3)
        again, other = self.build(7), self.build(8)
        assert one.keys() == again.keys()
        assert all(torch.equal(one[name], again[name]) for name in one)
        drawn = [n for n in one if "norm" not in n and not n.endswith("bias")]
        assert len(drawn) > 20
        assert not any(torch.equal(one[name], other[name]) for name in drawn)

    def test_global_generator_is_left_as_it_was(self) -> None:
        before = torch.get_rng_state()
        self.build(7)
        assert torch.equal(before, torch.get_rng_state())
