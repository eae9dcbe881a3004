"""The whole model: what holds for all of its options."""

from typing import Any

import pytest
import torch

from model import Objective, build_transformer
from model.loss import CrossEntropy
from tests.model.reference import PAD, SPECIAL, tiny_model, tiny_section


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_of_padding_alone_gives_no_nan(dtype: torch.dtype) -> None:
    """Ranks of a dry lane train on such a batch, at a weight of zero."""
    model = tiny_model(tiny_section()).to(dtype)
    out = Objective(model, CrossEntropy(0.1))(*(torch.full((1, 3), PAD) for _ in range(3)))
    out.loss_sum.backward()
    assert out.loss_sum.item() == 0
    assert out.nll_sum.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize(
    ("tying", "names"),
    [
        ("three-way", ["source_embedding.tokens.weight"]),
        ("decoder", ["source_embedding.tokens.weight", "target_embedding.tokens.weight"]),
        ("none", ["source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight"]),
    ],
)
def test_tied_matrices_are_one_and_computed_positions_none(tying: str, names: list[str]) -> None:
    model = tiny_model(tiny_section(tied_embeddings=tying))
    matrices = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
    assert [n for n, _ in model.named_parameters() if n in matrices] == names
    saved = model.state_dict()
    assert len({saved[n].data_ptr() for n in matrices}) == len(names)
    assert not [name for name in saved if "positions" in name]


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator() -> None:
    section = tiny_section(positions="learned", tied_embeddings="none")
    sizes: dict[str, Any] = {"source_vocab_size": 13, "target_vocab_size": 11, "special": SPECIAL}
    state_dicts = []
    for other, seed in ((1, 7), (2, 7), (1, 8)):
        before = torch.manual_seed(other).get_state()
        state_dicts.append(build_transformer(section, **sizes, seed=seed).state_dict())
        assert torch.equal(before, torch.get_rng_state())
    one, again, another = state_dicts
    assert all(torch.equal(one[name], again[name]) for name in one)
    drawn = [n for n in one if "norm" not in n and not n.endswith("bias")]
    assert len(drawn) > 20
    assert not any(torch.equal(one[name], another[name]) for name in drawn)
