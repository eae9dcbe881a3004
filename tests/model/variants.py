"""Models that are held against the equations: each value of each option beside most values of the others."""

import random
from typing import Any

from torch import Tensor

from model.attention import MultiHeadAttention


class Scaled(MultiHeadAttention):
    """Somebody else's: queries are three times as large."""

    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        query, key, value = super().project(queries_BLD, memory_BSD)
        return 3 * query, key, value


_OPTIONS: dict[str, list[dict[str, Any]]] = {
    "norm": [{"norm": kind} for kind in ("layer", "rms", "scalar", "scalar_from_ones", "sample")],
    "eps": [{}, {"norm_eps": 0.3}],
    "residual": [{"norm_position": kind} for kind in ("pre", "post", "post_dropout_last", "post_block_dropout")],
    "final norm": [{}, {"final_norm": True}, {"final_norm": False}],
    "activation": [{"activation": kind} for kind in ("relu", "gelu", "silu", "swiglu", "none")],
    "inner bias": [{}, {"feed_forward_bias": False}],
    "bias": [{}, {"attention_bias": False}],
    "output's": [{}, {"attention_output_bias": False}],
    "scale": [{}, {"attention_scale": "model_width"}],
    "heads": [
        {},
        {"num_heads": 5, "head_width": 6},
        {"num_heads": 6, "num_kv_heads": 2},
        {"num_heads": 4, "num_kv_heads": 1, "head_width": 6},
    ],
    "positions": [
        {},
        {"position_layout": "halves", "position_base": 50.0},
        {"position_layout": "tensor2tensor", "position_offset": 2},
        {"positions": "learned", "position_offset": 2},
        {"positions": "rotary", "position_base": 50.0},
        {"positions": "none"},
    ],
    "tied": [{"tied_embeddings": kind} for kind in ("three-way", "decoder", "none")],
    "logits": [{}, {"output_bias": True}],
    "embeddings": [{}, {"scale_embeddings": False}],
    "memory": [{}, {"activation_checkpointing": True}],
    "depths": [{}, {"encoder_layers": 1, "decoder_layers": 2}],
}


def _models(number: int) -> list[dict[str, Any]]:
    """In each, options in a random order take the value that meets most of those before it for the first time."""
    met: set[frozenset[tuple[str, int]]] = set()
    draw, models = random.Random(2), []
    for _ in range(number):
        row: dict[str, int] = {}
        for name in draw.sample(list(_OPTIONS), len(_OPTIONS)):
            values = draw.sample(range(len(_OPTIONS[name])), len(_OPTIONS[name]))
            pairs = [{frozenset({(name, value), other}) for other in row.items()} for value in values]
            best = max(range(len(values)), key=lambda at: len(pairs[at] - met))
            row[name] = values[best]
            met |= pairs[best]
        models.append({key: v for name, at in row.items() for key, v in _OPTIONS[name][at].items()})
    return models


MODELS = [{}, *_models(15)]
"""Of eight pairs of values of two options, seven stand together in one of them."""
