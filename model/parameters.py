"""The parameters of a model, one by one, without building it: names, shapes and order of `model.Transformer`."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from configs import ModelSection
from configs.components.model import NamedShape

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
    """All parameters in the order of `Transformer.named_parameters`; a shared matrix stands at its first use.

    Raises:
        UserError: a part does not say which it has.
    """
    found = [*_embeddings(section, vocabularies)]
    for stack, num_layers in (("encoder", section.encoder_layers), ("decoder", section.decoder_layers)):
        for layer in range(num_layers):
            found += _layer(section, stack, f"{stack}.layers.{layer}")
        if section.has_final_norm:
            found += _named(f"{stack}.norm", section.norm.parameters(section.d_model), "norms")
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
        positions = section.positions.parameters(section.max_positions, section.d_model)
        yield from _named(f"{prefix}.positions", positions, "embedding")


def _output(section: ModelSection, vocabularies: Vocabularies) -> Iterator[Parameter]:
    if section.tied_embeddings == "none":
        yield Parameter(name="output.weight", shape=(vocabularies.target, section.d_model), part="output")
    if section.output_bias:
        yield Parameter(name="output.bias", shape=(vocabularies.target,), part="output")


def _layer(section: ModelSection, stack: str, prefix: str) -> Iterator[Parameter]:
    attentions = {"self_attention": "encoder attention"}
    if stack == "decoder":
        attentions = {"self_attention": "decoder self-attention", "cross_attention": "decoder cross-attention"}
    width = section.d_model
    for name, part in attentions.items():
        yield from _named(f"{prefix}.{name}", section.attention.parameters(width), part)
        if name == "self_attention" and (head_width := section.attention.rotated_width(width)) is not None:
            rotation = section.positions.rotation_parameters(section.max_positions, head_width)
            yield from _named(f"{prefix}.{name}.rotation", rotation, part)
        yield from _residual(section, f"{prefix}.{name}_residual", is_last=False)
    yield from _named(f"{prefix}.feed_forward", section.feed_forward.parameters(width), f"{stack} feed-forward")
    yield from _residual(section, f"{prefix}.feed_forward_residual", is_last=True)


def _residual(section: ModelSection, prefix: str, *, is_last: bool) -> Iterator[Parameter]:
    yield from _named(prefix, section.residual.parameters(section.d_model, section.norm, is_last=is_last), "norms")


def _named(prefix: str, shapes: Iterable[NamedShape], part: str) -> Iterator[Parameter]:
    return (Parameter(name=f"{prefix}.{name}", shape=shape, part=part) for name, shape in shapes)
