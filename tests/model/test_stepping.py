"""Training and a search's steps are one model, whatever part of an attention somebody overrides."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import UserError
from configs.components import make
from configs.plugins import Plugin
from model import Objective, SpecialIds, Transformer, build_transformer, stepping
from model.attention import MultiHeadAttention
from model.components.multi_head import MultiHead
from model.kernels import use_kernels
from model.layout import first_possible
from model.loss import CrossEntropy
from model.stepping import check_steps, steps_apart
from tests.model.flat import section_of

CPU = torch.device("cpu")
SOURCE, TARGET = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]]), torch.tensor([[1, 9, 10], [1, 11, 12]])

THEIRS = Plugin(file="theirs.py", sha256="0")


class Scaled(MultiHeadAttention):
    """Queries are three times as large."""

    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        query, key, value = super().project(queries_BLD, memory_BSD)
        return 3 * query, key, value


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
    section = section_of(d_model=16, encoder_layers=1, decoder_layers=2, max_positions=32, dropout=0.0, **fields)
    special = SpecialIds(pad=0, bos=1, eos=2)
    model = build_transformer(section, source_vocab_size=40, target_vocab_size=40, special=special, seed=1)
    for part in model.modules():
        if type(part) is MultiHeadAttention:
            part.__class__ = attention
    return model.eval()


@pytest.mark.parametrize("attention", [MultiHeadAttention, Scaled])
@pytest.mark.parametrize("fields", [{}, {"num_heads": 4, "num_kv_heads": 2}, {"positions": "rotary"}])
def test_an_override_changes_training_and_steps_alike(
    attention: type[MultiHeadAttention], fields: dict[str, Any]
) -> None:
    model = small(attention, **fields)
    assert steps_apart(model) < 1e-5
    plain, found = (m(SOURCE, TARGET) for m in (small(**fields), model))
    assert torch.allclose(plain, found) == (attention is MultiHeadAttention)


def test_a_search_projects_no_memory_again() -> None:
    model = small()
    layer: Any = model.decoder.layers[0]
    calls: list[tuple[int, ...]] = []
    layer.cross_attention.key.register_forward_hook(lambda _, given, __: calls.append(tuple(given[0].shape)))
    state = model.start(SOURCE)
    for position in range(3):
        model.step(TARGET[:, position], state)
    assert calls == [(2, 4, 16)]


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
    def layout(section: Any, change: Callable[[Transformer], None] = lambda _: None) -> tuple[str, str]:
        special = SpecialIds(pad=0, bos=1, eos=2)
        model = build_transformer(section, source_vocab_size=40, target_vocab_size=40, special=special, seed=1)
        change(model)
        objective = Objective(model, CrossEntropy(0.1)).train()
        use_kernels(objective, CPU, "cuda")
        return first_possible(objective.layouts(CPU, torch.float32))

    def rescale(model: Transformer) -> None:
        model.encoder.layers[0].self_attention.__class__ = Scaled

    section = section_of(d_model=16, encoder_layers=1, decoder_layers=1, max_positions=32)
    assert layout(section) == ("flash", "")
    derived = dataclasses.replace(section, attention=Derived(kind="derived", num_heads=2))
    assert layout(derived) == ("padded", "model.attention.kind: derived may mix rows")
    assert layout(section, rescale)[0] == "padded"
    for family, kinds in {
        "norm": ["layer", "rms", "sample"],
        "feed_forward": ["swiglu", "gelu"],
        "positions": ["rotary"],
    }.items():
        for kind in kinds:
            assert layout(dataclasses.replace(section, **{family: make(family, kind)}))[0] == "flash", kind
