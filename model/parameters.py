"""The parameters of a model, one by one, without building it: names, shapes and order of `model.Transformer`."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from configs import ModelSection, SearchSection, UserError
from configs.components.model import NamedShape, UnsaidError

OF_SHORT_SOURCE = 16
"""Padded tokens of a source in a batch that has many of them."""

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
    size: int = field(init=False, compare=False)
    """Elements."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", math.prod(self.shape))  # a plan asks for it a hundred thousand times


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


def check_said(section: ModelSection, vocabularies: Vocabularies, built: Sequence[tuple[str, tuple[int, ...]]]) -> None:
    """See that the parts of a model have the parameters that they say: else what is planned is another model.

    Args:
        section: the model's.
        vocabularies: its.
        built: name and shape of every parameter, in their order.

    Raises:
        UserError: a part says others.
    """
    try:
        said = [(p.name, p.shape) for p in parameters(section, vocabularies)]
    except UnsaidError:
        return
    for one, other in itertools.zip_longest(said, built):
        if one != other:
            name = (other or one)[0]
            raise UserError(
                f"{_chosen(section, name)}: its `parameters` say {_shown(one)}, and its module has {_shown(other)} in "
                "that place; allowed is the same"
            )


def _chosen(section: ModelSection, name: str) -> str:
    """The part that a parameter belongs to, as a configuration chooses it."""
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


def search_bytes(model: ModelSection, search: SearchSection, vocabulary: int, element: int) -> int:
    """What a search holds at most: keys and values of the decoder, of hypotheses as long as they may get and of their
    sources, and logits with their logarithms in fp32 of a batch of short sources.

    Args:
        model: its sections.
        search: how it is searched.
        vocabulary: pieces of the target side.
        element: bytes of a number.
    """
    width = model.decoder_layers * model.attention.cached_numbers(model.d_model)
    tokens = search.batch_tokens * search.max_length_ratio + search.batch_tokens / search.beam
    logits = search.batch_tokens // OF_SHORT_SOURCE * vocabulary
    return element * int(tokens) * width + (element + 4) * logits
