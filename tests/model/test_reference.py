"""The five reference systems: our models compute what plain modules under the notebooks' own names compute."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from configs import ConfigError, SearchSection, UserError, preset_model
from model import Transformer, build_transformer
from model.attention import MultiHeadAttention, attention_weights
from model.kernels.cpu.training import CpuDropout
from model.positions import sinusoidal_table
from model.reference import NOTEBOOKS, load
from model.search import search
from model.sublayers import Dropout
from tests.model.flat import nested
from tests.model.notebooks import Notebook, log_probabilities, tiny_notebook
from tests.model.reference import BOS, EOS, PAD, SPECIAL, pad

SOURCES = pad([[5, 9, 3, 16, 7, EOS], [4, EOS], [11, 3, 3, EOS]], width=8)
TARGETS = pad([[BOS, 6, 5], [BOS, 10, 4, 8, 12], [BOS]])
IS_REAL = TARGETS != PAD


each_preset = pytest.mark.parametrize("preset", NOTEBOOKS)


def ours_of(preset: str, theirs: Notebook, **overrides: Any) -> Transformer:
    return load(preset, theirs.state_dict(), num_heads=3, special=SPECIAL, **overrides)


def our_log_probabilities(model: Transformer) -> Tensor:
    return torch.log_softmax(model.output(model(SOURCES, TARGETS)), dim=-1)[IS_REAL]


def check(ours: Transformer, theirs: Notebook, atol: float = 1e-5) -> None:
    with torch.no_grad():
        expected = log_probabilities(theirs, SOURCES, TARGETS)[IS_REAL]
        torch.testing.assert_close(our_log_probabilities(ours), expected, rtol=0, atol=atol)


@each_preset
def test_loaded_weights_compute_the_same(preset: str) -> None:
    theirs = tiny_notebook(preset)
    ours = ours_of(preset, theirs)
    assert not ours.training
    check(ours, theirs)


@each_preset
def test_a_search_finds_the_most_probable_tokens(preset: str) -> None:
    theirs = tiny_notebook(preset)
    section = SearchSection(beam=1, max_length_ratio=1e-9, max_length_extra=6)
    for source, (hypothesis,) in zip(SOURCES, search(ours_of(preset, theirs), SOURCES, section), strict=True):
        ids = [BOS]
        while len(ids) < 6 and ids[-1] != EOS:
            ids.append(EOS + int(log_probabilities(theirs, source[None], torch.tensor([ids]))[0, -1, EOS:].argmax()))
        assert hypothesis.ids == [token for token in ids[1:] if token != EOS]


@each_preset
def test_updates_are_the_same_and_dropout_stands_where_it_stood(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training with masks that the shape and the rate alone decide: a dropout too many, too few, at another place or
    rate, and the outputs differ."""

    def masked(module: Any, x: Tensor, p: float = 0.1) -> Tensor:
        p = getattr(module, "p", p)
        if not module.training or p == 0:
            return x
        kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(sum(x.shape))) >= p
        return x * kept / (1 - p)

    def in_steps(
        self: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool
    ) -> Tensor:
        weights = attention_weights(query, key, bias, is_causal=is_causal, scale=self.scale)
        return torch.matmul(self.dropout(weights), value)

    for kind in (Dropout, CpuDropout, Notebook):
        monkeypatch.setattr(kind, "drop" if kind is Notebook else "forward", masked)
    monkeypatch.setattr(MultiHeadAttention, "attend", in_steps)  # torch's own draws masks that nothing here sees
    theirs = tiny_notebook(preset)
    ours = ours_of(preset, theirs).train()
    theirs.training = True
    check(ours, theirs, 2e-5)
    trained = [tensor.requires_grad_() for name, tensor in theirs.weights.items() if not name.endswith("pe")]
    for _ in range(3):
        both: list[tuple[list[Tensor], Tensor]] = [
            ([*ours.parameters()], our_log_probabilities(ours)),
            (trained, log_probabilities(theirs, SOURCES, TARGETS)[IS_REAL]),
        ]
        for parameters, log_probs in both:
            gradients = torch.autograd.grad(-log_probs[:, 5].sum(), parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, gradients, alpha=-0.01)
    check(ours, theirs, 2e-5)
    with pytest.raises(AssertionError, match="not close"):
        check(ours.eval(), theirs, 1e-2)


CHANGES: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "notebook_annotated_fr": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
    "notebook_gelu_dk": lambda state: {
        **{name: tensor for name, tensor in state.items() if not name.endswith("pe")},
        "decoder.transformer_blocks.0.attention_1.causal_mask": torch.ones(9, 9),
    },
    "notebook_learned_pos": lambda state: {name: tensor.double() for name, tensor in state.items()},
    "notebook_prenorm_viz": lambda state: {name.replace("linear_l", "linear_1"): t for name, t in state.items()},
    "notebook_postnorm_es": lambda state: {n: t.squeeze() if t.shape == (1,) else t for n, t in state.items()},
}
"""Under a parallel wrapper, with other buffers, in double precision, in the other spelling, with plain scalars."""


@pytest.mark.parametrize(("preset", "change"), CHANGES.items())
def test_ways_of_saving(preset: str, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    theirs = tiny_notebook(preset)
    check(load(preset, change(theirs.state_dict()), num_heads=3, special=SPECIAL), theirs)


def test_projections_without_biases_where_both_are_found() -> None:
    theirs = tiny_notebook("notebook_learned_pos")
    biases = (".q.bias", ".k.bias", ".v.bias")
    theirs.weights = {name: tensor for name, tensor in theirs.weights.items() if not name.endswith(biases)}
    check(ours_of("notebook_learned_pos", theirs), theirs)


@pytest.mark.parametrize(
    ("changes", "options", "named"),
    [
        ({"encoder.extra.weight": torch.zeros(2)}, {}, "unexpected encoder.extra.weight"),
        ({"decoder.norm.a_2": torch.zeros(13)}, {}, "decoder.norm.a_2 is 13, must be 12"),
        ({f"extra{i}": torch.zeros(1) for i in range(9)}, {}, "extra0, extra1, extra2, extra3 and 5 more"),
        ({"optimizer": {}}, {}, "'optimizer' is a dict"),
        # The table that was trained with tells: sinusoids of another base would be put in its place.
        ({"src_embed.1.pe": sinusoidal_table(50, 12, base=1000.0)[None]}, {}, "src_embed.1.pe differs"),
        ({"module.decoder.norm.a_2": torch.zeros(12)}, {}, "decoder.norm.a_2 occurs twice"),
        ({"decoder.norm.a_2": torch.zeros(12, dtype=torch.int8)}, {}, "decoder.norm.a_2 is int8"),
        ({}, {"preset": "notebook_postnorm_es"}, "missing src_embed.embedding.weight"),
        ({}, {"num_heads": 0}, "num_heads: 0 "),
        ({}, {"num_heads": 5}, "num_heads: 5 "),
        ({}, {"preset": "modern"}, "preset: 'modern'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named(changes: dict[str, Any], options: dict[str, Any], named: str) -> None:
    state = {**tiny_notebook("notebook_annotated_fr").state_dict(), **changes}
    given: dict[str, Any] = {"preset": "notebook_annotated_fr", "num_heads": 3, "state": state, **options}
    with pytest.raises(UserError, match=re.escape(named)):
        load(**given)


def test_overrides() -> None:
    theirs = tiny_notebook("notebook_postnorm_es")
    ours = ours_of("notebook_postnorm_es", theirs, dropout=0.4, max_positions=99)
    assert (ours.section.dropout, ours.max_positions) == (0.4, 99)
    for overrides, said in (({"dropuot": 0.1}, r"model\.dropuot"), ({"dropout": 2}, r"model\.dropout: 2")):
        with pytest.raises(ConfigError, match=said):
            ours_of("notebook_postnorm_es", theirs, **overrides)


@each_preset
def test_initial_weights(preset: str) -> None:
    """Three have Xavier matrices, and the rest as torch has it: uniform within 1 / sqrt(inputs)."""
    section = preset_model(preset, nested({"d_model": 64, "d_ff": 256, "num_heads": 4, "encoder_layers": 1}))
    model = build_transformer(section, source_vocab_size=91, target_vocab_size=70, special=SPECIAL, seed=1)
    is_xavier = preset not in ("notebook_gelu_dk", "notebook_learned_pos")
    for name, parameter in model.named_parameters():
        if is_xavier and parameter.ndim > 1:
            bound = (6 / sum(parameter.shape)) ** 0.5
            assert 0.95 * bound < parameter.abs().max() <= bound, name
        elif "norm" in name:
            is_one = name.endswith("weight") or preset == "notebook_postnorm_es"
            assert (parameter == float(is_one)).all(), name
        elif "embedding" in name:
            assert parameter.std().item() == pytest.approx(1, abs=0.05), name
        else:
            fan_in = 256 if ".outer." in name else 64
            assert 0.7 / fan_in**0.5 < parameter.abs().max() <= 1 / fan_in**0.5, name
