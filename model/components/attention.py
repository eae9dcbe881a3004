"""Multi-head attention: its fields, costs and limits. The equations: `model.attention`."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from configs.components import component
from configs.components.model import FLOAT, Attention, NamedShape, Storage, linear
from configs.fields import Probability, Size

if TYPE_CHECKING:
    from torch import Tensor, nn

    from configs.model import ModelSection
    from model.attention import MultiHeadAttention


@component("attention", "multi_head")
class MultiHead(Attention):
    """Scaled dot-product attention with several heads (Vaswani et al., 2017), which may share keys and values."""

    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})
    has_weights: ClassVar[bool] = True

    num_heads: Size = 8
    """Heads of each attention; divides d_model."""
    num_kv_heads: Size | None = None
    """Heads of keys and values, each shared by num_heads / num_kv_heads heads of queries (Ainslie et al., 2023);
    unless given, as many as num_heads."""
    head_width: Size | None = None
    """d_model / num_heads unless given."""
    bias: bool = True
    """Of the projections to queries, keys and values."""
    output_bias: bool = True
    """Whether the output projection has a bias."""
    scale: Literal["head_width", "model_width"] = "head_width"
    """Scores are divided by the square root of it."""
    dropout: Probability = 0.0
    """On the weights."""

    @property
    def actual_num_kv_heads(self) -> int:
        """Heads of keys and values, given or not."""
        return self.num_kv_heads or self.num_heads

    def width_of_heads(self, width: int) -> int:
        """Width of a head in a model of this width, given or not."""
        return self.head_width or width // self.num_heads

    def query_width(self, width: int) -> int:
        """Of all heads of queries together."""
        return self.num_heads * self.width_of_heads(width)

    def memory_width(self, width: int) -> int:
        """Of all heads of keys together, and of values."""
        return self.actual_num_kv_heads * self.width_of_heads(width)

    def problems(self) -> Iterator[str]:
        """See Component."""
        if self.num_heads % self.actual_num_kv_heads:
            yield f"num_kv_heads: {self.num_kv_heads} must divide num_heads={self.num_heads}"

    def problems_at(self, width: int) -> Iterator[str]:
        """See Attention."""
        if self.head_width is None and width % self.num_heads:
            yield (f"num_heads: {self.num_heads} must divide d_model={width}, unless head_width is given")

    def rotated_width(self, width: int) -> int:
        """See Attention."""
        return self.width_of_heads(width)

    def build(self, width: int, rotation: "nn.Module | None") -> "MultiHeadAttention":
        """See Attention."""
        from model.attention import MultiHeadAttention

        return MultiHeadAttention(width, self, rotation)

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """See Attention."""
        queries, memory = self.query_width(width), self.memory_width(width)
        for name, outputs in (("query", queries), ("key", memory), ("value", memory)):
            yield from linear(name, width, outputs, bias=self.bias)
        yield from linear("output", queries, width, bias=self.output_bias)

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """Projections of queries and output, of keys and values; then scores and their products with the values.

        Causal attention counts in full: kernels may skip the masked half, and torch's counter does not know.
        """
        queries, memory = self.query_width(width), self.memory_width(width)
        projections = 2 * width * (2 * queries * query_tokens + 2 * memory * memory_tokens)
        return projections + 2 * 2 * query_tokens * memory_length * queries

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """Queries, keys and values, a head of them for each head of queries, and what their output is made of."""
        vectors = 2 * rows * (length + memory_length) * self.query_width(width) * storage.element
        if storage.is_fused:
            return vectors + rows * self.num_heads * length * FLOAT
        weights = rows * self.num_heads * length * memory_length
        dropped = storage.masks(weights, self.dropout) + weights * storage.element if self.dropout else 0
        return vectors + weights * storage.element + dropped

    def widest(self, width: int) -> int:
        """See Attention."""
        return self.query_width(width)

    def cached_numbers(self, width: int) -> int:
        """See Attention."""
        return 2 * self.memory_width(width)

    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        """See ModelPart."""
        if program == "huggingface" and self.query_width(model.d_model) != model.d_model:
            yield f"attention.head_width: {self.head_width}; allowed is d_model / num_heads"

    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        """See ModelPart."""
        if program == "huggingface":
            heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), self.num_heads)
            return {**heads, "attention_dropout": self.dropout}
        is_usual = self.query_width(model.d_model) == model.d_model
        return {"num_heads": self.num_heads, **({} if is_usual else {"head_dim": self.width_of_heads(model.d_model)})}

    def plain_weights(self, weights: Mapping[str, "Tensor"], model: "ModelSection") -> dict[str, "Tensor"]:
        """With a head of keys and values for each head of queries, which carry the scale, and all biases."""
        found = dict(weights)
        width = self.width_of_heads(model.d_model)
        divisor = {"head_width": width, "model_width": model.d_model}[self.scale]
        copies = self.num_heads // self.actual_num_kv_heads
        for part, times, factor in (
            ("query", 1, divisor**-0.5 * math.sqrt(width)),
            ("key", copies, 1.0),
            ("value", copies, 1.0),
        ):
            weight = weights[f"{part}.weight"]
            bias = weights.get(f"{part}.bias")
            for end, tensor in (("weight", weight), ("bias", weight.new_zeros(len(weight)) if bias is None else bias)):
                heads = tensor.reshape(-1, width, *tensor.shape[1:]).repeat_interleave(times, 0).flatten(0, 1)
                found[f"{part}.{end}"] = heads * factor
        return found
