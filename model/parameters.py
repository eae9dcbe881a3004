"""Names, shapes and order of all parameters of a `model.Transformer`: of one without memory, on the meta device."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

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
"""The parts of the model by which parameters and FLOPs are reported."""
_OF_LAYERS = {
    ("encoder", "self_attention"): "encoder attention",
    ("decoder", "self_attention"): "decoder self-attention",
    ("decoder", "cross_attention"): "decoder cross-attention",
}


@dataclass(kw_only=True, slots=True, frozen=True)
class Parameter:
    """One trainable tensor."""

    name: str
    shape: tuple[int, ...]
    part: str
    size: int = field(init=False, compare=False)
    """Number of elements."""

    def __post_init__(self) -> None:
        # a property would be slow: a plan reads it a hundred thousand times
        object.__setattr__(self, "size", math.prod(self.shape))


@dataclass(kw_only=True, slots=True, frozen=True)
class Vocabularies:
    """Vocabulary sizes of both sides; equal if the vocabulary is joint."""

    source: int
    target: int


def parameters(section: ModelSection, vocabularies: Vocabularies) -> list[Parameter]:
    """All parameters in the order of `Transformer.named_parameters`; a tied matrix is listed once, at its first use."""
    import torch

    from model.transformer import SpecialIds, Transformer

    with torch.device("meta"):
        model = Transformer(
            section,
            source_vocab_size=vocabularies.source,
            target_vocab_size=vocabularies.target,
            special=SpecialIds(pad=0, bos=1, eos=2),
        )
    return [Parameter(name=name, shape=tuple(p.shape), part=_part(name)) for name, p in model.named_parameters()]


def by_part(listed: Iterable[Parameter]) -> dict[str, int]:
    """Number of elements in each part of the model."""
    sizes = dict.fromkeys(PARTS, 0)
    for parameter in listed:
        sizes[parameter.part] += parameter.size
    return sizes


def _part(name: str) -> str:
    """The part that a parameter belongs to, such as `encoder.layers.0.feed_forward.inner.weight`."""
    stack, *inside = name.split(".")
    if stack == "output":
        return "output"
    if stack.endswith("embedding"):
        return "embedding"
    if inside[0] == "norm" or inside[2].endswith("_residual"):
        return "norms"
    return _OF_LAYERS.get((stack, inside[2]), f"{stack} feed-forward")
