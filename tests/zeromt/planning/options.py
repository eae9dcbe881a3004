"""Models of every kind, drawn at random."""

from typing import Any

from hypothesis import strategies as st

from configs import ModelSection
from model.flops import Vocabularies
from tests.model.flat import section_of

BOOL = st.booleans()


@st.composite
def sections(draw: st.DrawFn) -> ModelSection:
    """Any combination of options, small."""
    kv_heads = draw(st.integers(1, 3))
    fields: dict[str, Any] = {
        "d_model": 2 * draw(st.integers(1, 12)),
        "num_kv_heads": kv_heads,
        "num_heads": kv_heads * draw(st.integers(1, 3)),
        "head_width": 2 * draw(st.integers(1, 4)),
        "d_ff": draw(st.integers(1, 40)),
        "encoder_layers": draw(st.integers(1, 3)),
        "decoder_layers": draw(st.integers(1, 3)),
        "norm_position": draw(st.sampled_from(["pre", "post", "post_dropout_last", "post_block_dropout"])),
        "norm": draw(st.sampled_from(["layer", "rms", "scalar", "scalar_from_ones", "sample"])),
        "final_norm": draw(st.sampled_from([None, True, False])),
        "positions": draw(st.sampled_from(["sinusoidal", "learned", "rotary", "none"])),
        "max_positions": draw(st.integers(8, 20)),
        "activation": draw(st.sampled_from(["relu", "gelu", "silu", "swiglu", "none"])),
        "tied_embeddings": draw(st.sampled_from(["three-way", "decoder", "none"])),
        "dropout": draw(st.sampled_from([0.0, 0.1])),
        "activation_checkpointing": draw(BOOL),
    }
    for name in ("attention_bias", "attention_output_bias", "feed_forward_bias", "output_bias", "scale_embeddings"):
        fields[name] = draw(BOOL)
    for name in ("embedding_dropout", "attention_dropout", "activation_dropout"):
        fields[name] = draw(st.sampled_from([0.0, 0.1]))
    if fields["positions"] in ("learned", "sinusoidal"):
        fields["position_offset"] = draw(st.integers(0, 2))
    section = section_of(**fields)
    assert not list(section.problems())
    return section


@st.composite
def models(draw: st.DrawFn) -> tuple[ModelSection, Vocabularies]:
    """A section, and vocabularies that go with it."""
    section = draw(sections())
    source = draw(st.integers(8, 30))
    target = source if section.tied_embeddings == "three-way" else draw(st.integers(8, 30))
    return section, Vocabularies(source=source, target=target)
