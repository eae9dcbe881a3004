"""The five notebooks' names for the modules of this project's Transformer; L stands for the layer number."""

from dataclasses import dataclass


@dataclass(kw_only=True, slots=True, frozen=True)
class Names:
    """The module and parameter names of one notebook."""

    modules: dict[str, str]
    """Maps this project's module names to the notebook's."""
    norm_weight: str = "weight"
    norm_bias: str = "bias"
    has_varying_bias: bool = False
    """Whether the projections to queries, keys and values may or may not have biases."""


_PROJECTIONS = ("query", "key", "value", "output")
_W = ("w_q", "w_k", "w_v", "w_o")
_NUMBERED = ("0", "1", "2", "3")
_QUERY = ("query", "key", "value", "out")
_QUERIES = ("queries", "keys", "values", "fc_out")


def _layers(theirs: str, ours: str, parts: dict[str, str]) -> dict[str, str]:
    """Maps this project's names of a layer's modules to the notebook's."""
    return {f"{ours}.layers.L.{part}": f"{theirs}.L.{name}" for part, name in parts.items()}


def _attention(ours: str, theirs: str, *names: str) -> dict[str, str]:
    """Maps the names of the query, key, value and output projections."""
    return {f"{ours}.{part}": f"{theirs}.{n}" for part, n in zip(_PROJECTIONS, names, strict=True)}


_BLOCKS = {
    "source_embedding.tokens": "src_embed.embedding",
    "target_embedding.tokens": "tgt_embed.embedding",
    "output": "projection_layer.proj",
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "self_attention_block", *_W),
            "self_attention_residual.norm": "residual_connections.0.norm",
            "feed_forward.inner": "feed_forward_block.linear_1",
            "feed_forward.outer": "feed_forward_block.linear_2",
            "feed_forward_residual.norm": "residual_connections.1.norm",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "self_attention_block", *_W),
            "self_attention_residual.norm": "residual_connections.0.norm",
            **_attention("cross_attention", "cross_attention_block", *_W),
            "cross_attention_residual.norm": "residual_connections.1.norm",
            "feed_forward.inner": "feed_forward_block.linear_1",
            "feed_forward.outer": "feed_forward_block.linear_2",
            "feed_forward_residual.norm": "residual_connections.2.norm",
        },
    ),
}
_FINAL_NORMS = {"encoder.norm": "encoder.norm", "decoder.norm": "decoder.norm"}

_ANNOTATED = {
    "source_embedding.tokens": "src_embed.0.lut",
    "target_embedding.tokens": "tgt_embed.0.lut",
    "output": "generator.proj",
    **_FINAL_NORMS,
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "self_attn.linears", *_NUMBERED),
            "self_attention_residual.norm": "sublayer.0.norm",
            "feed_forward.inner": "feed_forward.w_1",
            "feed_forward.outer": "feed_forward.w_2",
            "feed_forward_residual.norm": "sublayer.1.norm",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "self_attn.linears", *_NUMBERED),
            "self_attention_residual.norm": "sublayer.0.norm",
            **_attention("cross_attention", "src_attn.linears", *_NUMBERED),
            "cross_attention_residual.norm": "sublayer.1.norm",
            "feed_forward.inner": "feed_forward.w_1",
            "feed_forward.outer": "feed_forward.w_2",
            "feed_forward_residual.norm": "sublayer.2.norm",
        },
    ),
}

_GELU_DK = {
    "source_embedding.tokens": "encoder.embedding",
    "target_embedding.tokens": "decoder.embedding",
    "output": "decoder.out",
    **_FINAL_NORMS,
    **_layers(
        "encoder.transformer_blocks",
        "encoder",
        {
            **_attention("self_attention", "attention", *_QUERY),
            "self_attention_residual.norm": "norm1",
            "feed_forward.inner": "ff.0",
            "feed_forward.outer": "ff.2",
            "feed_forward_residual.norm": "norm2",
        },
    ),
    **_layers(
        "decoder.transformer_blocks",
        "decoder",
        {
            **_attention("self_attention", "attention_1", *_QUERY),
            "self_attention_residual.norm": "norm1",
            **_attention("cross_attention", "attention_2", *_QUERY),
            "cross_attention_residual.norm": "norm2",
            "feed_forward.inner": "ff.0",
            "feed_forward.outer": "ff.2",
            "feed_forward_residual.norm": "norm3",
        },
    ),
}

_LEARNED_POS = {
    "source_embedding.tokens": "encoder.word_embedding",
    "source_embedding.positions": "encoder.position_embedding",
    "target_embedding.tokens": "decoder.word_embedding",
    "target_embedding.positions": "decoder.position_embedding",
    "output": "decoder.fc_out",
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "attention", *_QUERIES),
            "self_attention_residual.norm": "norm1",
            "feed_forward.inner": "feed_forward.0",
            "feed_forward.outer": "feed_forward.2",
            "feed_forward_residual.norm": "norm2",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "attention", *_QUERIES),
            "self_attention_residual.norm": "norm",
            **_attention("cross_attention", "transformer_block.attention", *_QUERIES),
            "cross_attention_residual.norm": "transformer_block.norm1",
            "feed_forward.inner": "transformer_block.feed_forward.0",
            "feed_forward.outer": "transformer_block.feed_forward.2",
            "feed_forward_residual.norm": "transformer_block.norm2",
        },
    ),
}

NOTEBOOKS = {
    "notebook_postnorm_es": Names(modules=_BLOCKS, norm_weight="alpha", norm_bias="beta"),
    "notebook_prenorm_viz": Names(modules={**_BLOCKS, **_FINAL_NORMS}, norm_weight="alpha"),
    "notebook_annotated_fr": Names(modules=_ANNOTATED, norm_weight="a_2", norm_bias="b_2"),
    "notebook_gelu_dk": Names(modules=_GELU_DK),
    "notebook_learned_pos": Names(modules=_LEARNED_POS, has_varying_bias=True),
}
"""By preset name."""
