"""Names, shapes and order of all parameters of a `model.Transformer`, without building it."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from configs import ModelSection, UserError
from model.parts import NamedShape, UndeclaredError

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
"""The parts of the model by which parameters and FLOPs are reported."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Parameter:
    """One trainable tensor."""

    name: str
    shape: tuple[int, ...]
    part: str
    size: int = field(init=False, compare=False)
    """Number of elements."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "size", math.prod(self.shape)
        )  # a property would be slow: a plan reads it a hundred thousand times


@dataclass(kw_only=True, slots=True, frozen=True)
class Vocabularies:
    """Vocabulary sizes of both sides; equal if the vocabulary is joint."""

    source: int
    target: int


def parameters(section: ModelSection, vocabularies: Vocabularies) -> list[Parameter]:
    """All parameters in the order of `Transformer.named_parameters`; a tied matrix is listed once, at its first use.

    Raises:
        UserError: a component does not declare its parameters.
    """
    listed = [*_embeddings(section, vocabularies)]
    for stack, num_layers in (("encoder", section.encoder_layers), ("decoder", section.decoder_layers)):
        for layer in range(num_layers):
            listed += _layer(section, stack, f"{stack}.layers.{layer}")
        if section.has_final_norm:
            listed += _named(f"{stack}.norm", section.norm.parameters(section.d_model), "norms")
    return [*listed, *_output(section, vocabularies)]


def check_declared(
    section: ModelSection, vocabularies: Vocabularies, built: Sequence[tuple[str, tuple[int, ...]]]
) -> None:
    """Check that the components of a model have the parameters that they declare, which plans rely on.

    Args:
        section: of the model.
        vocabularies: of the model.
        built: name and shape of every parameter of the built model, in order.

    Raises:
        UserError: a component declares other parameters than it has.
    """
    try:
        declared = [(p.name, p.shape) for p in parameters(section, vocabularies)]
    except UndeclaredError:
        return
    for one, other in itertools.zip_longest(declared, built):
        if one != other:
            name = (other or one)[0]
            raise UserError(
                f"{_component_of(section, name)}: `parameters` declares {_shown(one)}, but the module has "
                f"{_shown(other)}; make them equal"
            )


def _component_of(section: ModelSection, name: str) -> str:
    """The configuration key and kind of the component that a parameter belongs to."""
    places = {
        "_embedding.positions.": section.positions,
        "_attention.rotation.": section.positions,
        "_attention.": section.attention,
        "feed_forward.": section.feed_forward,
        "norm.": section.norm,
        "_residual.": section.residual,
    }
    part = next((part for place, part in places.items() if place in name), None)
    return "model" if part is None else f"model.{part.family}.kind {part.kind!r}"


def _shown(parameter: tuple[str, tuple[int, ...]] | None) -> str:
    return "nothing" if parameter is None else f"{parameter[0]} {parameter[1]}"


def by_part(listed: Iterable[Parameter]) -> dict[str, int]:
    """Number of elements in each part of the model."""
    sizes = dict.fromkeys(PARTS, 0)
    for parameter in listed:
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
