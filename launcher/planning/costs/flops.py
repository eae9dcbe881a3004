"""Floating-point operations of one micro-batch: those of matrix products, a multiplication and an addition being two.

Norms, softmax, activations, dropout and the optimizer are left out, as by `torch.utils.flop_counter` and in what the
field calls model FLOPs utilisation (Chowdhery et al., 2022, appendix B). Causal attention counts in full: the
kernels may skip the masked half, and the counter does not know. A backward pass is two forward passes.
"""

from dataclasses import dataclass

from configs import ModelSection
from launcher.planning.costs.parameters import PARTS, Vocabularies


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


def forward(section: ModelSection, vocabularies: Vocabularies, shape: Shape) -> dict[str, int]:
    """FLOPs of a forward pass, by part."""
    found = dict.fromkeys(PARTS, 0)
    source, target = shape.source_tokens, shape.target_tokens
    found["encoder attention"] = section.encoder_layers * _attention(section, source, source, shape.source)
    found["encoder feed-forward"] = section.encoder_layers * _feed_forward(section, source)
    found["decoder self-attention"] = section.decoder_layers * _attention(section, target, target, shape.target)
    found["decoder cross-attention"] = section.decoder_layers * _attention(section, target, source, shape.source)
    found["decoder feed-forward"] = section.decoder_layers * _feed_forward(section, target)
    found["output"] = 2 * target * section.d_model * vocabularies.target
    return found


def training(section: ModelSection, vocabularies: Vocabularies, shape: Shape) -> dict[str, int]:
    """FLOPs of forward and backward, by part.

    With activation checkpointing the layers go forward twice; the output layer has no second time.
    """
    found = {part: 3 * flops for part, flops in forward(section, vocabularies, shape).items()}
    if section.activation_checkpointing:
        for part, flops in forward(section, vocabularies, shape).items():
            found[part] += 0 if part == "output" else flops
        for part, num_layers, tokens in (
            ("encoder feed-forward", section.encoder_layers, shape.source_tokens),
            ("decoder feed-forward", section.decoder_layers, shape.target_tokens),
        ):
            found[part] -= num_layers * _not_recomputed(section, tokens)
    return found


def _not_recomputed(section: ModelSection, tokens: int) -> int:
    """A layer's recomputation ends when nothing more is needed: before the last product, where nothing follows it."""
    is_last = section.norm_position == "pre" and section.dropout == 0
    return 2 * section.d_model * section.d_ff * tokens if is_last else 0


def _attention(section: ModelSection, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
    """Projections of queries and output, of keys and values; then scores and their products with the values."""
    queries = section.num_heads * section.actual_head_width
    memory = section.actual_num_kv_heads * section.actual_head_width
    projections = 2 * section.d_model * (2 * queries * query_tokens + 2 * memory * memory_tokens)
    return projections + 2 * 2 * query_tokens * memory_length * queries


def _feed_forward(section: ModelSection, tokens: int) -> int:
    matrices = 3 if section.activation == "swiglu" else 2
    return 2 * matrices * section.d_model * section.d_ff * tokens
