"""Multi-head attention: its fields, costs and limits. The equations: `model.attention`."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from configs.components import component
from configs.fields import Probability, Size
from model.parts import FLOAT, Attention, Storage

if TYPE_CHECKING:
    from torch import Tensor, nn

    from configs.model import ModelSection
    from model.attention import MultiHeadAttention

FLASH_TILE_ROWS, FLASH_WIDTH_MULTIPLE = 128, 32


@component("attention", "multi_head")
class MultiHead(Attention):
    """Scaled dot-product attention with several heads (Vaswani et al., 2017), which may share keys and values."""

    packs_rows: ClassVar[bool] = True
    programs: ClassVar[frozenset[str]] = frozenset({"huggingface", "ctranslate2"})

    num_heads: Size = 8
    """Number of attention heads; must divide d_model unless head_width is given."""
    num_kv_heads: Size | None = None
    """Number of key and value heads, each shared by num_heads / num_kv_heads query heads (Ainslie et al., 2023);
    num_heads by default."""
    head_width: Size | None = None
    """Width of a head; d_model / num_heads by default."""
    bias: bool = True
    """Whether the projections to queries, keys and values have biases."""
    output_bias: bool = True
    """Whether the output projection has a bias."""
    scale: Literal["head_width", "model_width"] = "head_width"
    """Scores are divided by the square root of this width."""
    dropout: Probability = 0.0
    """Dropout probability of the attention weights."""

    @property
    def actual_num_kv_heads(self) -> int:
        """Number of key and value heads: `num_kv_heads`, or its default."""
        return self.num_kv_heads or self.num_heads

    def width_of_heads(self, width: int) -> int:
        """Width of a head in a model of this width: `head_width`, or its default."""
        return self.head_width or width // self.num_heads

    def query_width(self, width: int) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.width_of_heads(width)

    def memory_width(self, width: int) -> int:
        """Width of all key heads together, which is that of all value heads."""
        return self.actual_num_kv_heads * self.width_of_heads(width)

    @override
    def problems(self) -> Iterator[str]:
        if self.num_heads % self.actual_num_kv_heads:
            yield f"num_kv_heads: {self.num_kv_heads} must divide num_heads={self.num_heads}"

    @override
    def problems_at(self, width: int) -> Iterator[str]:
        if self.head_width is None and width % self.num_heads:
            yield (f"num_heads: {self.num_heads} must divide d_model={width}, unless head_width is given")

    @override
    def rotated_width(self, width: int) -> int:
        return self.width_of_heads(width)

    @override
    def build(self, width: int, rotation: "nn.Module | None") -> "MultiHeadAttention":
        from model.attention import MultiHeadAttention

        return MultiHeadAttention(width, self, rotation)

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """Four projections (query, output, key, value), then the scores and the weighted sum of the values.

        Causal attention counts in full, as in torch's counter, although kernels may skip the masked half.
        """
        queries, memory = self.query_width(width), self.memory_width(width)
        projections = 2 * width * (2 * queries * query_tokens + 2 * memory * memory_tokens)
        return projections + 2 * 2 * query_tokens * memory_length * queries

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """Queries, keys, values (repeated to one head for each query head), the output, and a number for each row."""
        vectors = 2 * rows * (length + memory_length) * self.query_width(width) * storage.element
        return vectors + rows * self.num_heads * length * FLOAT

    def workspace_bytes(self, width: int, *, tokens: int, rows: int, storage: Storage) -> int:
        """The query's gradient in fp32, which flash attention (Dao, 2023) sums with up to a tile more for each row.

        Its name is `dq_accum` in `mha_varlen_bwd` (flash-attention, csrc/flash_attn/flash_api.cpp; torch's is a copy).
        In fp32 and with dropout other kernels run, which need none.
        """
        if storage.element == FLOAT or self.dropout:
            return 0
        head_width = -(-self.width_of_heads(width) // FLASH_WIDTH_MULTIPLE) * FLASH_WIDTH_MULTIPLE
        return (tokens + FLASH_TILE_ROWS * rows) * self.num_heads * head_width * FLOAT

    @override
    def widest(self, width: int) -> int:
        return self.query_width(width)

    @override
    def export_problems(self, program: str, model: "ModelSection") -> Iterator[str]:
        yield from super().export_problems(program, model)
        if program == "huggingface" and self.query_width(model.d_model) != model.d_model:
            yield f"attention.head_width: {self.head_width} must be d_model / num_heads for this export"

    @override
    def exported(self, program: str, model: "ModelSection") -> dict[str, Any]:
        if program == "huggingface":
            heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), self.num_heads)
            return {**heads, "attention_dropout": self.dropout}
        is_usual = self.query_width(model.d_model) == model.d_model
        return {"num_heads": self.num_heads, **({} if is_usual else {"head_dim": self.width_of_heads(model.d_model)})}

    def plain_weights(self, weights: Mapping[str, "Tensor"], model: "ModelSection") -> dict[str, "Tensor"]:
        """With key and value heads repeated for every query head, the scale folded into the queries, and all biases."""
        plain = dict(weights)
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
                plain[f"{part}.{end}"] = heads * factor
        return plain
