"""Bytes that a forward pass keeps for the backward pass of a micro-batch: what each part of the model says, added up.

The idea is that of Korthikanti et al. (2022, section 4); the terms are those of our layers. All of it grows with the
tokens alone where attention is fused, as on GPUs; without, the weights of attention grow with the square of lengths.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from configs import ModelSection
from configs.components.model import Loss, LossBytes, Storage
from launcher.planning.costs.model_states import ELEMENT
from model.costs.flops import BatchShape
from model.parameters import Vocabularies

Kernels = Callable[[str], Storage]
"""What differs between devices, by the precision of the training."""


def gpu(precision: str) -> Storage:
    """`F.dropout` and `F.scaled_dot_product_attention`, its flash or memory-efficient kernel (Dao et al., 2022)."""
    return Storage(element=ELEMENT[precision], mask=1, is_fused=True)


def cpu(precision: str) -> Storage:
    """What `model/kernels/cpu` does: in fp32 the count is tested against torch.

    With products too small for `model.kernels.cpu.linear.can_join`: large ones keep fewer masks and copies there.
    """
    return Storage(element=ELEMENT[precision], mask=ELEMENT[precision], is_fused=False)


@dataclass(kw_only=True, slots=True, frozen=True)
class Activations:
    """Bytes of one micro-batch."""

    kept: Mapping[str, int]
    """By part, at the end of the forward pass."""
    recomputed: int
    """With checkpointing: the largest layer, computed again during the backward pass."""
    working: int
    """Gradients of the widest activations, passing through."""

    @property
    def total(self) -> int:
        """What is held at once, the output layer apart."""
        return sum(self.kept.values()) + self.recomputed


def activations(section: ModelSection, shape: BatchShape, *, precision: str, kernels: Kernels = gpu) -> Activations:
    """What the layers keep. The shape's lengths count where attention is not fused only.

    Raises:
        UserError: a part does not say what it keeps.
    """
    storage, width = kernels(precision), section.d_model
    source, target = shape.source_tokens, shape.target_tokens
    encoder, decoder = _encoder_layer(section, shape, storage), _decoder_layer(section, shape, storage)
    has_layers_kept = not section.activation_checkpointing
    hidden = width * storage.element
    last_norms = sum(section.norm.activation_bytes(width, tokens, storage) for tokens in (source, target))
    kept = {
        "embedding": _embedding(section, source, storage) + _embedding(section, target, storage),
        "encoder": section.encoder_layers * (encoder if has_layers_kept else source * hidden),
        "decoder": section.decoder_layers * (decoder if has_layers_kept else target * hidden),
        # and the mask of its padding, which plain attention has no need of
        "memory": source * hidden + source * storage.element * (storage.is_fused or not has_layers_kept),
        "final norms": last_norms if section.has_final_norm else 0,
    }
    widest = max(section.feed_forward.widest(width), width, section.attention.widest(width))
    return Activations(
        kept=kept,
        recomputed=0 if has_layers_kept else max(encoder, decoder),
        working=2 * max(source, target) * widest * storage.element,
    )


def output_bytes(
    section: ModelSection, loss: Loss, vocabularies: Vocabularies, target_tokens: int, *, precision: str
) -> LossBytes:
    """Bytes of the output layer and the loss on a GPU."""
    return loss.activation_bytes(
        section.d_model, target_tokens, vocabularies.target, has_bias=section.output_bias, storage=gpu(precision)
    )


def _embedding(section: ModelSection, tokens: int, storage: Storage) -> int:
    mask = storage.masks(tokens * section.d_model, section.actual_embedding_dropout)
    return mask + section.positions.activation_bytes(section.d_model, tokens, storage)


def _encoder_layer(section: ModelSection, shape: BatchShape, storage: Storage) -> int:
    tokens = shape.source_tokens
    found = _self_attention(section, shape.rows, shape.source, storage)
    found += section.feed_forward.activation_bytes(section.d_model, tokens, storage)
    return found + sum(_residual(section, tokens, storage, is_last=i == 1) for i in range(2))


def _decoder_layer(section: ModelSection, shape: BatchShape, storage: Storage) -> int:
    tokens = shape.target_tokens
    found = _self_attention(section, shape.rows, shape.target, storage)
    found += section.attention.activation_bytes(
        section.d_model, rows=shape.rows, length=shape.target, memory_length=shape.source, storage=storage
    )
    found += section.feed_forward.activation_bytes(section.d_model, tokens, storage)
    return found + sum(_residual(section, tokens, storage, is_last=i == 2) for i in range(3))


def _self_attention(section: ModelSection, rows: int, length: int, storage: Storage) -> int:
    found = section.attention.activation_bytes(
        section.d_model, rows=rows, length=length, memory_length=length, storage=storage
    )
    if section.attention.rotated_width(section.d_model) is None:
        return found
    turned = 2 * rows * length * section.attention.widest(section.d_model)
    return found + section.positions.rotation_bytes(turned, storage)


def _residual(section: ModelSection, tokens: int, storage: Storage, *, is_last: bool) -> int:
    return section.residual.activation_bytes(
        section.d_model, section.norm, section.dropout, tokens=tokens, is_last=is_last, storage=storage
    )
