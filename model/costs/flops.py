"""Floating-point operations of one micro-batch, as the parts of the model say them.

Counted are those of matmuls, a multiplication and an addition being two.

Norms, softmax, activations, dropout and the optimizer are not counted, as by `torch.utils.flop_counter` and in what the
field calls model FLOPs utilisation (Chowdhery et al., 2022, appendix B). Causal attention counts in full: the
kernels may skip the masked half, and the counter does not know. A backward pass is two forward passes.
"""

from dataclasses import dataclass

from configs import ModelSection
from configs.components.model import Loss
from model.parameters import PARTS, Vocabularies


@dataclass(kw_only=True, slots=True, frozen=True)
class Shape:
    """A micro-batch, padding included."""

    rows: int
    source: int
    """Padded length."""
    target: int

    @property
    def source_tokens(self) -> int:
        """Padded tokens."""
        return self.rows * self.source

    @property
    def target_tokens(self) -> int:
        """Padded tokens."""
        return self.rows * self.target


def forward(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: Shape) -> dict[str, int]:
    """FLOPs of a forward pass, by part.

    Raises:
        UserError: a part does not say how many it takes.
    """
    found = dict.fromkeys(PARTS, 0)
    source, target = shape.source_tokens, shape.target_tokens
    found["encoder attention"] = section.encoder_layers * _attention(section, source, source, shape.source)
    found["encoder feed-forward"] = section.encoder_layers * section.feed_forward.flops(section.d_model, source)
    found["decoder self-attention"] = section.decoder_layers * _attention(section, target, target, shape.target)
    found["decoder cross-attention"] = section.decoder_layers * _attention(section, target, source, shape.source)
    found["decoder feed-forward"] = section.decoder_layers * section.feed_forward.flops(section.d_model, target)
    found["output"] = loss.flops(section.d_model, target, vocabularies.target)
    return found


def learning(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: Shape) -> int:
    """FLOPs of forward and backward without any that are made twice: those that model FLOPs utilisation counts.

    Raises:
        UserError: as `forward`.
    """
    return 3 * sum(forward(section, loss, vocabularies, shape).values())


def training(section: ModelSection, loss: Loss, vocabularies: Vocabularies, shape: Shape) -> dict[str, int]:
    """FLOPs of forward and backward that are made, by part.

    With activation checkpointing the layers go forward twice; the output layer has no second time.

    Raises:
        UserError: as `forward`.
    """
    once = forward(section, loss, vocabularies, shape)
    found = {part: 3 * flops for part, flops in once.items()}
    if section.activation_checkpointing:
        for part, flops in once.items():
            found[part] += 0 if part == "output" else flops
        for part, num_layers, tokens in (
            ("encoder feed-forward", section.encoder_layers, shape.source_tokens),
            ("decoder feed-forward", section.decoder_layers, shape.target_tokens),
        ):
            found[part] -= num_layers * _not_recomputed(section, tokens)
    return found


def _not_recomputed(section: ModelSection, tokens: int) -> int:
    """A layer's recomputation ends when nothing more is needed: before the last product, where nothing follows it."""
    is_needed = section.residual.needs_result(section.dropout)
    return 0 if is_needed else section.feed_forward.last_flops(section.d_model, tokens)


def _attention(section: ModelSection, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
    return section.attention.flops(
        section.d_model, query_tokens=query_tokens, memory_tokens=memory_tokens, memory_length=memory_length
    )
