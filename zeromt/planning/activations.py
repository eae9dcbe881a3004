"""Activation memory: the bytes that the forward pass of a micro-batch keeps for its backward pass.

It is the sum of what each part of the model states. The method is that of Korthikanti et al. (2022, section 4); the
terms are those of our layers. Attention is fused, so activations grow linearly with the number of tokens.
"""

from collections.abc import Mapping
from typing import NamedTuple

from configs import ModelSection
from model.flops import BatchShape, Vocabularies
from model.parts import Loss, LossBytes, Residual, Storage

ELEMENT = {"fp32": 4, "bf16": 2, "fp16": 2}
"""Bytes of a number."""


def gpu(precision: str) -> Storage:
    """Storage of `F.dropout` and of fused `F.scaled_dot_product_attention` (Dao et al., 2022)."""
    return Storage(element=ELEMENT[precision], mask=1, has_rms_norm=True)


class Activations(NamedTuple):
    """Activation memory of one micro-batch, in bytes."""

    kept: Mapping[str, int]
    """Kept at the end of the forward pass, by part of the model."""
    recomputed: int
    """With activation checkpointing: the largest layer, which the backward pass computes again."""
    working: int
    """Gradients of the widest activations, or of attention with its workspace: they exist only for a moment in the
    backward pass."""

    @property
    def total(self) -> int:
        """Kept and recomputed activations, without the output layer."""
        return sum(self.kept.values()) + self.recomputed


def activations(
    section: ModelSection,
    shape: BatchShape,
    storage: Storage,
    *,
    num_rows: int | None = None,
    attention: str = "auto",
) -> Activations:
    """Activation memory of all layers. With fused attention only the shape's numbers of tokens matter, not its lengths.

    Args:
        section: the run's section `model`.
        shape: of the micro-batch.
        storage: how the device's kernels store activations.
        num_rows: rows of a packed micro-batch whose `shape` has all tokens in one.
        attention: `engine.attention`.

    Raises:
        UserError: a part of the model does not state its activation memory.
    """
    width = section.d_model
    source, target = shape.source_tokens, shape.target_tokens
    encoder, decoder = _encoder_layer(section, shape, storage), _decoder_layer(section, shape, storage)
    has_layers_kept = not section.activation_checkpointing
    hidden = width * storage.element
    last_norms = sum(section.norm.activation_bytes(width, tokens, storage) for tokens in (source, target))
    kept = {
        "embedding": _embedding(section, source, storage) + _embedding(section, target, storage),
        "encoder": section.encoder_layers * (encoder if has_layers_kept else source * hidden),
        "decoder": section.decoder_layers * (decoder if has_layers_kept else target * hidden),
        # the encoder's output, and the mask of its padding
        "memory": source * hidden + source * storage.element,
        "final norms": last_norms if section.has_final_norm else 0,
    }
    return Activations(
        kept=kept,
        recomputed=0 if has_layers_kept else max(encoder, decoder),
        working=_working(section, max(source, target), num_rows or shape.rows, storage, attention),
    )


def output_bytes(
    section: ModelSection, loss: Loss, vocabularies: Vocabularies, target_tokens: int, *, precision: str
) -> LossBytes:
    """Memory of the output layer and the loss on a GPU, in bytes."""
    return loss.activation_bytes(
        section.d_model, target_tokens, vocabularies.target, has_bias=section.output_bias, storage=gpu(precision)
    )


def _embedding(section: ModelSection, tokens: int, storage: Storage) -> int:
    mask = storage.masks(tokens * section.d_model, section.actual_embedding_dropout)
    return mask + int(section.positions.activation_bytes(section.d_model, tokens, storage))


def _encoder_layer(section: ModelSection, shape: BatchShape, storage: Storage) -> int:
    tokens = shape.source_tokens
    num_bytes: int = _self_attention(section, shape.rows, shape.source, storage)
    num_bytes += section.feed_forward.activation_bytes(section.d_model, tokens, storage)
    return num_bytes + sum(_residual(section, tokens, storage, is_last=i == 1) for i in range(2))


def _decoder_layer(section: ModelSection, shape: BatchShape, storage: Storage) -> int:
    tokens = shape.target_tokens
    num_bytes: int = _self_attention(section, shape.rows, shape.target, storage)
    num_bytes += section.attention.activation_bytes(
        section.d_model, rows=shape.rows, length=shape.target, memory_length=shape.source, storage=storage
    )
    num_bytes += section.feed_forward.activation_bytes(section.d_model, tokens, storage)
    return num_bytes + sum(_residual(section, tokens, storage, is_last=i == 2) for i in range(3))


def _working(section: ModelSection, tokens: int, rows: int, storage: Storage, way: str) -> int:
    width, attention = section.d_model, section.attention
    widest = max(section.feed_forward.widest(width), width, attention.widest(width))
    # the efficient kernels' is at most flash attention's: the query's gradient in fp32, too, in tiles of half the rows
    # (torch, mem_eff_attention/kernel_backward.h)
    is_packed = way != "padded"
    workspace = attention.workspace_bytes(width, tokens=tokens, rows=rows, storage=storage) if is_packed else 0
    # of queries, keys, values and the output
    gradients: int = 4 * tokens * attention.widest(width) * storage.element
    return max(2 * int(tokens * widest) * storage.element, gradients + workspace)


def _self_attention(section: ModelSection, rows: int, length: int, storage: Storage) -> int:
    num_bytes: int = section.attention.activation_bytes(
        section.d_model, rows=rows, length=length, memory_length=length, storage=storage
    )
    if section.attention.rotated_width(section.d_model) is None:
        return num_bytes
    rotated = 2 * rows * length * section.attention.widest(section.d_model)
    return num_bytes + int(section.positions.rotation_bytes(rotated, storage))


def _residual(section: ModelSection, tokens: int, storage: Storage, *, is_last: bool) -> int:
    residual: Residual = section.residual
    return residual.activation_bytes(
        section.d_model, section.norm, section.dropout, tokens=tokens, is_last=is_last, storage=storage
    )
