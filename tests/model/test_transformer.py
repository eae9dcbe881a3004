"""The whole model against plain equations and against torch's own layers."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from configs import ModelSection
from model import Objective, Transformer, build_transformer
from model.loss import CrossEntropy
from model.positions import sinusoidal_table
from tests.model.equations import SOURCES, TARGET_INPUTS, check_gradients, check_logits, check_longest
from tests.model.flat import flat, section_of
from tests.model.reference import BOS, EOS, PAD, SPECIAL, PlainTransformer, logits_of, pad, tiny_model, tiny_section

VARIANTS = [
    {"norm_position": norm, "positions": positions, "activation": activation, "tied_embeddings": tying}
    for norm, positions, activation, tying in itertools.product(
        ["pre", "post"], ["sinusoidal", "learned"], ["relu", "gelu", "swiglu"], ["three-way", "decoder", "none"]
    )
]


def name_of(variant: dict[str, str]) -> str:
    return "-".join(variant.values())


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_logits_are_those_of_the_equations(variant: dict[str, str]) -> None:
    section = tiny_section(**variant)
    model = tiny_model(section, source_vocab=13, target_vocab=13 if variant["tied_embeddings"] == "three-way" else 11)
    check_logits(model, section, targets=[[token % 11 for token in row] for row in TARGET_INPUTS])


@pytest.mark.parametrize("scale_embeddings", [True, False])
def test_scale_of_embeddings(scale_embeddings: bool) -> None:
    section = tiny_section(scale_embeddings=scale_embeddings)
    model = tiny_model(section)
    with torch.no_grad():
        logits = logits_of(model, pad(SOURCES[:1]), pad(TARGET_INPUTS[:1]))[0]
        expected = PlainTransformer.of(model, section).logits(SOURCES[0], TARGET_INPUTS[0])
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", [VARIANTS[0], VARIANTS[13], VARIANTS[35]], ids=name_of)
def test_gradients_are_those_of_the_equations(variant: dict[str, str]) -> None:
    check_gradients(tiny_section(**variant))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_logits_are_those_of_torch_layers(norm_position: str, activation: str) -> None:
    section = tiny_section(norm_position=norm_position, activation=activation)
    model = tiny_model(section)
    source, target = pad(SOURCES), pad(TARGET_INPUTS)
    ours = logits_of(model, source, target)
    theirs = torch_logits(model, section, source, target)
    is_real = target != PAD
    torch.testing.assert_close(ours[is_real], theirs[is_real], rtol=0, atol=1e-5)


def torch_logits(model: Transformer, section: ModelSection, source: Tensor, target: Tensor) -> Tensor:
    """The same weights in torch.nn.TransformerEncoderLayer and DecoderLayer."""
    fields = flat(section)
    is_pre = fields.norm_position == "pre"
    sizes = (fields.d_model, fields.num_heads, fields.d_ff, 0.0, fields.activation)
    table = sinusoidal_table(section.max_positions, section.d_model)
    x, y = (
        embedding.tokens.weight[ids] * section.d_model**0.5 + table[: ids.shape[1]]
        for embedding, ids in ((model.source_embedding, source), (model.target_embedding, target))
    )
    hidden = source == PAD
    for layer in model.encoder.layers:
        encoder_layer = nn.TransformerEncoderLayer(*sizes, batch_first=True, norm_first=is_pre)
        copy_layer(layer, encoder_layer)
        x = encoder_layer(x, src_key_padding_mask=hidden)
    x = model.encoder.norm(x)
    future = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) < 0
    for layer in model.decoder.layers:
        decoder_layer = nn.TransformerDecoderLayer(*sizes, batch_first=True, norm_first=is_pre)
        copy_layer(layer, decoder_layer)
        y = decoder_layer(y, x, tgt_mask=future, memory_key_padding_mask=hidden)
    logits: Tensor = model.decoder.norm(y) @ model.output.weight.T
    return logits


def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    weights = ours.state_dict()
    copied = {}
    pairs = [("self_attention", "self_attn", "norm1"), ("feed_forward", "", "norm2")]
    if hasattr(ours, "cross_attention"):
        pairs = [pairs[0], ("cross_attention", "multihead_attn", "norm2"), ("feed_forward", "", "norm3")]
    for kind in ("weight", "bias"):
        for name, attention, norm in pairs:
            copied[f"{norm}.{kind}"] = weights[f"{name}_residual.norm.{kind}"]
            if attention:
                parts = [weights[f"{name}.{part}.{kind}"] for part in ("query", "key", "value")]
                copied[f"{attention}.in_proj_{kind}"] = torch.cat(parts)
                copied[f"{attention}.out_proj.{kind}"] = weights[f"{name}.output.{kind}"]
        copied[f"linear1.{kind}"] = weights[f"feed_forward.inner.{kind}"]
        copied[f"linear2.{kind}"] = weights[f"feed_forward.outer.{kind}"]
    theirs.load_state_dict(copied)


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


def test_bf16_is_close_to_fp32() -> None:
    model = tiny_model(tiny_section())
    source, target = pad(SOURCES), pad(TARGET_INPUTS)
    with torch.no_grad():
        full = logits_of(model, source, target)
        half = logits_of(model.to(torch.bfloat16), source, target)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), full, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("max_positions", [1, 4])
def test_more_positions_than_there_are_is_refused(positions: str, max_positions: int) -> None:
    check_longest(tiny_section(positions=positions, max_positions=max_positions))


class TestParameters:
    """Counted by hand from the paper's table 3, and once each however many names they have."""

    @pytest.mark.parametrize(("d_model", "num_heads", "d_ff"), [(512, 8, 2048), (1024, 16, 4096)], ids=["base", "big"])
    def test_number(self, d_model: int, num_heads: int, d_ff: int) -> None:
        section = section_of(d_model=d_model, num_heads=num_heads, d_ff=d_ff, norm_position="post")
        with torch.device("meta"):
            model = Transformer(section, source_vocab_size=37000, target_vocab_size=37000, special=SPECIAL)
        attention = 4 * (d_model * d_model + d_model)
        feed_forward = 2 * d_model * d_ff + d_ff + d_model
        norm = 2 * d_model
        encoder_layer = attention + feed_forward + 2 * norm
        decoder_layer = 2 * attention + feed_forward + 3 * norm
        expected = 37000 * d_model + 6 * (encoder_layer + decoder_layer)
        assert sum(p.numel() for p in model.parameters()) == expected
        paper = {512: 65e6, 1024: 213e6}[d_model]
        assert expected == pytest.approx(paper, rel=0.035)

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
