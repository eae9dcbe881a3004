"""Training and a search's steps are one model, whatever part of an attention somebody overrides."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import UserError
from configs.plugins import Plugin
from model import Objective, Transformer, stepping
from model.attention import MultiHeadAttention
from model.components.multi_head import MultiHead
from model.kernels import use_kernels
from model.layout import first_possible
from model.loss import CrossEntropy
from model.stepping import check_steps, steps_apart
from tests.model.reference import tiny_model, tiny_section
from tests.model.variants import Scaled

CPU = torch.device("cpu")
SOURCE, TARGET = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]]), torch.tensor([[1, 9, 10], [1, 11, 12]])

THEIRS = Plugin(file="theirs.py", sha256="0")


class Forgetful(MultiHeadAttention):
    """Each step attends to its own position alone."""

    def extend(self, cache: Any, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().extend(cache, key, value)
        return key, value


class Uncached(MultiHeadAttention):
    """It knows no cache."""

    def forward(self, queries_BLD: Tensor, memory_BSD: Tensor, bias: Any = None, *, is_causal: bool = False) -> Tensor:  # type: ignore[override]
        return super().forward(queries_BLD, memory_BSD, bias, is_causal=is_causal)


@pytest.fixture(autouse=True)
def way() -> str:
    """A test that wants kernels puts them over it."""
    return "plain"


def small(attention: type[MultiHeadAttention] = MultiHeadAttention, **fields: Any) -> Transformer:
    model = tiny_model(tiny_section(decoder_layers=2, max_positions=32, **fields))
    for part in model.modules():
        if type(part) is MultiHeadAttention:
            part.__class__ = attention
    return model


@pytest.mark.parametrize("fields", [{}, {"num_heads": 6, "num_kv_heads": 2}, {"positions": "rotary"}])
def test_an_override_changes_training_and_steps_alike(fields: dict[str, Any]) -> None:
    model = small(Scaled, **fields)
    assert steps_apart(model) < 1e-5
    assert not torch.allclose(small(**fields)(SOURCE, TARGET), model(SOURCE, TARGET))


def test_a_search_projects_no_memory_again() -> None:
    model = small()
    layer: Any = model.decoder.layers[0]
    calls: list[tuple[int, ...]] = []
    layer.cross_attention.key.register_forward_hook(lambda _, given, __: calls.append(tuple(given[0].shape)))
    state = model.start(SOURCE)
    for position in range(3):
        model.step(TARGET[:, position], state)
    assert calls == [(2, 4, 12)]


@pytest.mark.parametrize(("attention", "said"), [
    (Forgetful, r"model\.attention: multi_head: with teacher forcing and step by step.* are up to [\d.]+ apart"),
    (Uncached, r"model\.attention: multi_head: cannot be used step by step, as a search does: TypeError: "),
])  # fmt: skip
def test_a_part_of_somebody_else_that_is_two_models_is_refused(
    attention: type[MultiHeadAttention], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(attention)
    check_steps(model)  # of ours nothing is asked
    monkeypatch.setattr(stepping, "origin_of", lambda kind: THEIRS if kind is MultiHead else None)
    with pytest.raises(UserError, match=said):
        check_steps(model)
    check_steps(small(Scaled))


def test_the_probe_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "origin_of", lambda _: THEIRS)
    model = small().train()
    before, drawn = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    check_steps(model)
    assert model.training
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@dataclasses.dataclass(kw_only=True, frozen=True)
class Derived(MultiHead):
    """It says nothing of packed rows; the one that it is derived from does."""


def test_only_a_part_that_says_so_itself_packs_rows() -> None:
    derived = dataclasses.replace(tiny_section(), attention=Derived(kind="derived", num_heads=2))
    expected = {
        small(): ("flash", ""),
        small(Scaled): ("padded", "Scaled may mix rows"),
        tiny_model(derived): ("padded", "model.attention.kind: derived may mix rows"),
    }
    for model, layout in expected.items():
        objective = Objective(model, CrossEntropy(0.1))
        use_kernels(objective, CPU, "cuda")
        assert first_possible(objective.layouts(CPU, torch.float32)) == layout
