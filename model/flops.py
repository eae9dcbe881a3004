"""Parameters and floating-point operations (FLOPs) of a model.

Only matmuls count; a multiply-add is two operations.

Norms, softmax, activations, dropout and the optimizer do not, as in `torch.utils.flop_counter` and in model FLOPs
utilisation (MFU; Chowdhery et al., 2022, appendix B). Causal attention counts in full, as in torch's counter, although
kernels may skip the masked half. A backward pass counts as two forward passes.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from configs import ModelSection
from model.parts import Attention, Loss

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


@dataclass(kw_only=True, slots=True, frozen=True)
class BatchShape:
    """Shape of a micro-batch, padding included."""

    rows: int
    source: int
    """Padded source length."""
    target: int
    """Padded target length."""

    @property
    def source_tokens(self) -> int:
        """Padded source tokens."""
        return self.rows * self.source

    @property
    def target_tokens(self) -> int:
        """Padded target tokens."""
        return self.rows * self.target


def forward_flops(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: BatchShape) -> dict[str, int]:
    """FLOPs of a forward pass, by part of the model.

    Raises:
        UserError: a component has no FLOPs formula.
    """
    flops = dict.fromkeys(PARTS, 0)
    source, target = shape.source_tokens, shape.target_tokens
    flops["encoder attention"] = section.encoder_layers * _attention(section, source, source, shape.source)
    flops["encoder feed-forward"] = section.encoder_layers * section.feed_forward.flops(section.d_model, source)
    flops["decoder self-attention"] = section.decoder_layers * _attention(section, target, target, shape.target)
    flops["decoder cross-attention"] = section.decoder_layers * _attention(section, target, source, shape.source)
    flops["decoder feed-forward"] = section.decoder_layers * section.feed_forward.flops(section.d_model, target)
    flops["output"] = loss.flops(section.d_model, target, vocabularies.target)
    return flops


def model_flops(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: BatchShape) -> int:
    """FLOPs of forward and backward without recomputation: the numerator of MFU.

    Raises:
        UserError: as `forward_flops`.
    """
    return 3 * sum(forward_flops(section, loss, vocabularies, shape).values())


def executed_flops(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: BatchShape) -> dict[str, int]:
    """FLOPs of forward and backward that the device executes, recomputation included, by part of the model.

    With activation checkpointing the layers run forward twice; the output layer runs once.

    Raises:
        UserError: as `forward_flops`.
    """
    once = forward_flops(section, loss, vocabularies, shape)
    executed = {part: 3 * flops for part, flops in once.items()}
    if section.activation_checkpointing:
        for part, flops in once.items():
            executed[part] += 0 if part == "output" else flops
        for part, num_layers, tokens in (
            ("encoder feed-forward", section.encoder_layers, shape.source_tokens),
            ("decoder feed-forward", section.decoder_layers, shape.target_tokens),
        ):
            executed[part] -= num_layers * _not_recomputed(section, tokens)
    return executed


def _not_recomputed(section: ModelSection, tokens: int) -> int:
    """FLOPs of the layer's last matmul, if recomputation stops before it because the backward pass needs no result."""
    is_needed = section.residual.needs_result(section.dropout)
    return 0 if is_needed else section.feed_forward.last_flops(section.d_model, tokens)


def _attention(section: ModelSection, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
    attention: Attention = section.attention
    return attention.flops(
        section.d_model, query_tokens=query_tokens, memory_tokens=memory_tokens, memory_length=memory_length
    )
