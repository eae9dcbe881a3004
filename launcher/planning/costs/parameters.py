"""The parameters of a model, one by one, without building it: names, shapes and order of `model.Transformer`."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from configs import ModelSection

PARTS = (
    "embedding",
    "encoder attention",
    "encoder feed-forward",
    "decoder self-attention",
    "decoder cross-attention",
    "decoder feed-forward",
    "norms",
    "output",
)
"""What parameters and FLOPs are listed by."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Parameter:
    """One tensor that is trained."""

    name: str
    shape: tuple[int, ...]
    part: str

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)


@dataclass(kw_only=True, slots=True, frozen=True)
class Vocabularies:
    """Pieces of either side; one and the same where the vocabulary is joint."""

    source: int
    target: int


def parameters(section: ModelSection, vocabularies: Vocabularies) -> list[Parameter]:
    """All parameters in the order of `Transformer.named_parameters`; a shared matrix stands at its first use."""
    found = [*_embeddings(section, vocabularies)]
    for stack, num_layers in (("encoder", section.encoder_layers), ("decoder", section.decoder_layers)):
        for layer in range(num_layers):
            found += _layer(section, stack, f"{stack}.layers.{layer}")
        if section.has_final_norm:
            found += _norm(section, f"{stack}.norm")
    return [*found, *_output(section, vocabularies)]


def by_part(found: Iterable[Parameter]) -> dict[str, int]:
    """Elements of each part."""
    sizes = dict.fromkeys(PARTS, 0)
    for parameter in found:
        sizes[parameter.part] += parameter.size
    return sizes


def _embeddings(section: ModelSection, vocabularies: Vocabularies) -> Iterator[Parameter]:
    for side, pieces in (("source", vocabularies.source), ("target", vocabularies.target)):
        prefix, shape = f"{side}_embedding", (pieces, section.d_model)
        if side == "source" or section.tied_embeddings != "three-way":
            yield Parameter(name=f"{prefix}.tokens.weight", shape=shape, part="embedding")
        if section.positions == "learned":
            rows = section.max_positions + section.position_offset
            yield Parameter(name=f"{prefix}.positions.weight", shape=(rows, section.d_model), part="embedding")


def _output(section: ModelSection, vocabularies: Vocabularies) -> Iterator[Parameter]:
    if section.tied_embeddings == "none":
        yield Parameter(name="output.weight", shape=(vocabularies.target, section.d_model), part="output")
    if section.output_bias:
        yield Parameter(name="output.bias", shape=(vocabularies.target,), part="output")


def _layer(section: ModelSection, stack: str, prefix: str) -> Iterator[Parameter]:
    attentions = {"self_attention": "encoder attention"}
    if stack == "decoder":
        attentions = {"self_attention": "decoder self-attention", "cross_attention": "decoder cross-attention"}
    for name, part in attentions.items():
        yield from _attention(section, f"{prefix}.{name}", part)
        yield from _norm(section, f"{prefix}.{name}_residual.norm")
    yield from _feed_forward(section, f"{prefix}.feed_forward", f"{stack} feed-forward")
    yield from _norm(section, f"{prefix}.feed_forward_residual.norm")


def _attention(section: ModelSection, prefix: str, part: str) -> Iterator[Parameter]:
    queries = section.num_heads * section.actual_head_width
    memory = section.actual_num_kv_heads * section.actual_head_width
    for name, width in (("query", queries), ("key", memory), ("value", memory)):
        yield from _linear(f"{prefix}.{name}", section.d_model, width, part, bias=section.attention_bias)
    yield from _linear(f"{prefix}.output", queries, section.d_model, part, bias=section.attention_output_bias)


def _feed_forward(section: ModelSection, prefix: str, part: str) -> Iterator[Parameter]:
    for name in ("inner", "gate") if section.activation == "swiglu" else ("inner",):
        yield from _linear(f"{prefix}.{name}", section.d_model, section.d_ff, part, bias=section.feed_forward_bias)
    yield from _linear(f"{prefix}.outer", section.d_ff, section.d_model, part, bias=section.feed_forward_bias)


def _linear(prefix: str, inputs: int, outputs: int, part: str, *, bias: bool) -> Iterator[Parameter]:
    yield Parameter(name=f"{prefix}.weight", shape=(outputs, inputs), part=part)
    if bias:
        yield Parameter(name=f"{prefix}.bias", shape=(outputs,), part=part)


def _norm(section: ModelSection, prefix: str) -> Iterator[Parameter]:
    width = 1 if section.norm.startswith("scalar") else section.d_model
    for name in ("weight",) if section.norm == "rms" else ("weight", "bias"):
        yield Parameter(name=f"{prefix}.{name}", shape=(width,), part="norms")
