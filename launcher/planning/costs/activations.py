"""Bytes that a forward pass keeps for the backward pass of a micro-batch, counted from the code of `model/`.

The idea is that of Korthikanti et al. (2022, section 4); the terms are those of our layers. All of it grows with the
tokens alone where attention is fused, as on GPUs; without, the weights of attention grow with the square of lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from configs import ModelSection
from launcher.planning.costs.flops import Shape
from launcher.planning.costs.model_states import ELEMENT, FLOAT
from launcher.planning.costs.parameters import Vocabularies

DEVICE_CHUNK_ELEMENTS = 1 << 26
"""`model.loss.CHUNK_ELEMENTS`, which cannot be imported without torch; a test holds them together."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Kernels:
    """What differs between devices."""

    mask: int
    """Bytes for each element of a dropout mask."""
    is_fused: bool
    """Whether attention keeps the logarithms of its sums in place of its weights, and RMS norm only a deviation."""


GPU = Kernels(mask=1, is_fused=True)
"""`F.dropout` and `F.scaled_dot_product_attention`, its flash or memory-efficient kernel (Dao et al., 2022)."""
FP32_CPU = Kernels(mask=4, is_fused=False)
"""What `model/kernels/cpu` does in fp32: there the count is tested against torch.

With products too small for `model.kernels.cpu.linear.are_joined`: large ones keep fewer masks and copies there.
"""


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


def activations(section: ModelSection, shape: Shape, *, precision: str, kernels: Kernels = GPU) -> Activations:
    """What the layers keep. The shape's lengths count where attention is not fused only."""
    count = _Counter(section, ELEMENT[precision], kernels)
    source, target = shape.source_tokens, shape.target_tokens
    encoder = count.encoder_layer(shape)
    decoder = count.decoder_layer(shape)
    has_layers_kept = not section.activation_checkpointing
    num_inputs = {"encoder": section.encoder_layers * source, "decoder": section.decoder_layers * target}
    kept = {
        "embedding": count.dropout(source + target, section.d_model, section.actual_embedding_dropout),
        "encoder": section.encoder_layers * encoder if has_layers_kept else count.wide(num_inputs["encoder"]),
        "decoder": section.decoder_layers * decoder if has_layers_kept else count.wide(num_inputs["decoder"]),
        # and the mask of its padding, which plain attention has no need of
        "memory": count.wide(source) + source * count.element * (kernels.is_fused or not has_layers_kept),
        "final norms": sum(count.norm_with_input(n) for n in (source, target)) if section.has_final_norm else 0,
    }
    widest = max(section.d_ff, section.d_model, section.num_heads * section.actual_head_width)
    return Activations(
        kept=kept,
        recomputed=0 if has_layers_kept else max(encoder, decoder),
        working=2 * max(source, target) * widest * count.element,
    )


@dataclass(kw_only=True, slots=True, frozen=True)
class OutputBytes:
    """The output layer and the loss: `model.loss.cross_entropy_sums`, which holds the logits of some rows at a time."""

    kept: int
    """Gradients of hidden states and of the matrix, formed in the forward pass; the latter in fp32."""
    working: int
    """At most, beside those: logits of a chunk going forward, or the matrix's gradient going backward."""

    @property
    def total(self) -> int:
        """At most."""
        return self.kept + self.working


def output_bytes(
    section: ModelSection, vocabularies: Vocabularies, target_tokens: int, *, precision: str
) -> OutputBytes:
    """Bytes of the output layer on a GPU."""
    element, vocabulary = ELEMENT[precision], vocabularies.target
    matrix, hidden = vocabulary * section.d_model, target_tokens * section.d_model
    rows = max(1, DEVICE_CHUNK_ELEMENTS // vocabulary)
    chunk = min(rows, target_tokens) * vocabulary
    # logits, which become their gradient, and their probabilities; from the second chunk on the last one's beside them
    half = 0 if precision == "fp32" else element
    step = element + FLOAT
    last = half or FLOAT
    forward = max(chunk * (step + (last if target_tokens > rows else 0)), chunk * last + matrix * half)
    backward = matrix * (FLOAT + half) + hidden * element
    bias = vocabulary * FLOAT if section.output_bias else 0
    return OutputBytes(kept=hidden * element + matrix * FLOAT + bias, working=max(forward, backward))


class _Counter:
    """Bytes of the model's pieces."""

    def __init__(self, section: ModelSection, element: int, kernels: Kernels) -> None:
        self.section = section
        self.element = element
        self.kernels = kernels

    def encoder_layer(self, shape: Shape) -> int:
        tokens = shape.source_tokens
        attention = self.attention(shape.rows, shape.source, shape.source)
        return attention + self.feed_forward(tokens) + sum(self.residual(tokens, is_last=i == 1) for i in range(2))

    def decoder_layer(self, shape: Shape) -> int:
        tokens = shape.target_tokens
        attention = self.attention(shape.rows, shape.target, shape.target)
        attention += self.attention(shape.rows, shape.target, shape.source)
        return attention + self.feed_forward(tokens) + sum(self.residual(tokens, is_last=i == 2) for i in range(3))

    def wide(self, tokens: int) -> int:
        """Hidden states."""
        return tokens * self.section.d_model * self.element

    def dropout(self, tokens: int, width: int, probability: float) -> int:
        """A mask."""
        return tokens * width * self.kernels.mask if probability else 0

    def residual(self, tokens: int, *, is_last: bool) -> int:
        """What a sub-layer is given, its norm and its masks."""
        masks = {"post_block_dropout": 2 * is_last}.get(self.section.norm_position, 1)
        mask = self.dropout(tokens, self.section.d_model, self.section.dropout)
        return self.wide(tokens) + self.norm_with_input(tokens) + masks * mask

    def norm_with_input(self, tokens: int) -> int:
        """A norm's input, and what it keeps beside it: fused ones a mean and a deviation, others their steps."""
        kind = self.section.norm
        if kind == "layer":
            return self.wide(tokens) + 2 * tokens * FLOAT
        if kind == "rms":
            return self.wide(tokens) * (1 if self.kernels.is_fused else 2) + tokens * FLOAT
        return 3 * self.wide(tokens) + tokens * self.element * (1 if kind == "sample" else 2)

    def attention(self, rows: int, length: int, memory_length: int) -> int:
        """Queries, keys and values, a head of them for each head of queries, and what their output is made of."""
        width = self.section.num_heads * self.section.actual_head_width
        vectors = 2 * rows * (length + memory_length) * width * self.element
        if self.kernels.is_fused:
            return vectors + rows * self.section.num_heads * length * FLOAT
        weights = rows * self.section.num_heads * length * memory_length
        dropped = weights * (self.kernels.mask + self.element) if self.section.attention_dropout else 0
        return vectors + weights * self.element + dropped

    def feed_forward(self, tokens: int) -> int:
        """Inputs of the activation and of the outer projection, as far as they are not the same."""
        num_inner = {"relu": 1, "none": 1, "swiglu": 4}.get(self.section.activation, 2)
        inner = num_inner * tokens * self.section.d_ff * self.element
        return inner + self.dropout(tokens, self.section.d_ff, self.section.activation_dropout)
