"""A model's weights in the plain form that other programs have.

What is only another way to write the same function is written out: grouped heads as whole ones, biases that are not
there as zeros, the scale of the scores in the queries, the norm of a sample's variance as a layer norm, the table of
positions, three embeddings where they are tied. What is left are LayerNorm or RMSNorm, full multi-head attention
that scales by 1 / sqrt(head width), and biases everywhere.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from configs import ModelSection
from model import Transformer
from model.attention import MultiHeadAttention
from model.positions import LearnedPositions, SinusoidalPositions
from model.transformer import TokenEmbedding


def plain_weights(model: Transformer) -> dict[str, Tensor]:
    """Every weight by its name, as described above.

    Beside the names of the parameters there are `source_embedding.positions` and `target_embedding.positions`, tables
    (max_positions, D) that are added to the embeddings; with rotary positions there are none. `output.bias` and the
    biases of all projections are always there.
    """
    found = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    found.pop("source_embedding.positions.weight", None)
    found.pop("target_embedding.positions.weight", None)
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            found |= _attention(name, module)
        elif isinstance(module, nn.Linear) and module.bias is None and f"{name}.bias" not in found:
            found[f"{name}.bias"] = torch.zeros(module.out_features)
        elif name.endswith("norm") and model.section.norm == "sample" and f"{name}.weight" in found:
            found[f"{name}.weight"] = found[f"{name}.weight"] * _sample_ratio(model.section) ** 0.5
        elif isinstance(module, TokenEmbedding) and model.section.positions != "rotary":
            found[f"{name}.positions"] = _positions(module, model.section)
    found.setdefault("output.bias", torch.zeros(model.output.weight.shape[0]))
    return found


def norm_eps(section: ModelSection) -> float:
    """What the plain norm adds to the variance."""
    return section.norm_eps * (_sample_ratio(section) if section.norm == "sample" else 1.0)


def is_post_norm(section: ModelSection) -> bool:
    """Whether norms stand behind the residual sum; where dropout stands makes no difference to a trained model."""
    return section.norm_position != "pre"


def _sample_ratio(section: ModelSection) -> float:
    """Variance of a population by that of a sample."""
    return (section.d_model - 1) / section.d_model


def _attention(name: str, module: MultiHeadAttention) -> dict[str, Tensor]:
    """The projections of one attention, with a head of keys and values for each head of queries."""
    found = {}
    scale = module.scale * math.sqrt(module.head_width)
    for part, copies, factor in (
        ("query", 1, scale),
        ("key", module.queries_per_key, 1.0),
        ("value", module.queries_per_key, 1.0),
    ):
        linear = cast(nn.Linear, getattr(module, part))
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
        weight = _heads(linear.weight, module.head_width).repeat_interleave(copies, 0).flatten(0, 1)
        found[f"{name}.{part}.weight"] = weight * factor
        found[f"{name}.{part}.bias"] = _heads(bias, module.head_width).repeat_interleave(copies, 0).flatten() * factor
    return found


def _heads(tensor: Tensor, width: int) -> Tensor:
    """(H K, ...) to (H, K, ...)."""
    return tensor.detach().reshape(-1, width, *tensor.shape[1:])


def _positions(embedding: TokenEmbedding, section: ModelSection) -> Tensor:
    positions = embedding.positions
    if isinstance(positions, SinusoidalPositions):
        return positions.table.float()
    if isinstance(positions, LearnedPositions):
        return positions.weight.detach()[positions.offset :]
    return torch.zeros(section.max_positions, section.d_model)
