"""The section of the model: sizes, and variants that are each chosen by name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from configs.fields import STRICT, PositiveFloat, Probability

Size = Annotated[int, Field(gt=0, le=1 << 24)]
"""Of one dimension; a product of two is a number that torch can hold."""
Layers = Annotated[int, Field(gt=0, le=10_000)]


@dataclass(kw_only=True, slots=True, frozen=True)
class ModelSection:
    """The encoder-decoder Transformer (Vaswani et al., 2017) and its variants."""

    __pydantic_config__ = STRICT

    d_model: Size = 512
    num_heads: Size = 8
    num_kv_heads: Size | None = None
    """Heads of keys and values, each shared by num_heads / num_kv_heads heads of queries (Ainslie et al., 2023);
    unless given, as many as num_heads."""
    head_width: Size | None = None
    """d_model / num_heads unless given."""
    d_ff: Size = 2048
    encoder_layers: Layers = 6
    decoder_layers: Layers = 6
    norm_position: Literal["pre", "post", "post_dropout_last", "post_block_dropout"] = "pre"
    """The last two are orders of reference systems; `model/reference/residuals.py` states them."""
    norm: Literal["layer", "rms", "scalar", "scalar_from_ones", "sample"] = "layer"
    """The last three are norms of reference systems; `model/reference/norms.py` states them."""
    norm_eps: PositiveFloat = 1e-5
    final_norm: bool | None = None
    """A norm after the last layer of either stack; unless given, where norm_position is pre."""
    attention_bias: bool = True
    """Of the projections to queries, keys and values."""
    attention_output_bias: bool = True
    attention_scale: Literal["head_width", "model_width"] = "head_width"
    """Scores are divided by the square root of it."""
    feed_forward_bias: bool = True
    output_bias: bool = False
    """Of the logits."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "sinusoidal"
    position_base: PositiveFloat = 10000.0
    """Of the wavelengths of sinusoidal and rotary positions."""
    position_layout: Literal["interleaved", "halves", "tensor2tensor"] = "interleaved"
    """Of sinusoidal positions: sine and cosine by turns (Vaswani et al., 2017); all sines, then all cosines (Marian);
    or so, with wavelengths spread over one place less (tensor2tensor, fairseq, M2M100)."""
    position_offset: Annotated[int, Field(ge=0, le=1 << 24)] = 0
    """Number of the first position, where a table is added: 2 in fairseq and its descendants."""
    max_positions: Size = 1024
    """Longest sequence. Learned positions have so many (and the offset); whatever is longer is refused."""
    activation: Literal["relu", "gelu", "silu", "swiglu", "none"] = "relu"
    tied_embeddings: Literal["three-way", "decoder", "none"] = "three-way"
    """three-way: source, target and output share one matrix; decoder: target and output do."""
    scale_embeddings: bool = True
    initialisation: Literal["xavier", "xavier_matrices", "torch"] = "xavier"
    """The last two are those of reference systems; `model/reference/initialisation.py` states them."""
    dropout: Probability = 0.1
    """On what each sub-layer adds to the residual stream."""
    embedding_dropout: Probability | None = None
    """On embeddings with their positions; `dropout` unless given."""
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    activation_checkpointing: bool = False
    """Keep only the inputs of each layer and compute the rest again in the backward pass (Chen et al., 2016)."""

    @property
    def actual_head_width(self) -> int:
        """Width of a head, given or not."""
        return self.head_width or self.d_model // self.num_heads

    @property
    def actual_num_kv_heads(self) -> int:
        """Heads of keys and values, given or not."""
        return self.num_kv_heads or self.num_heads

    @property
    def has_final_norm(self) -> bool:
        """Whether either stack ends with a norm."""
        return self.norm_position == "pre" if self.final_norm is None else self.final_norm

    @property
    def actual_embedding_dropout(self) -> float:
        """Dropout on embeddings, given or not."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    def problems(self) -> Iterator[str]:
        """What is wrong between the fields, one line each."""
        if self.head_width is None and self.d_model % self.num_heads:
            yield (
                f"num_heads: {self.num_heads} does not divide d_model={self.d_model}; "
                "allowed is a divisor, or any number with head_width given"
            )
        elif self.positions == "rotary" and self.actual_head_width % 2:
            yield f"head_width: {self.actual_head_width} is odd; allowed with rotary positions is an even number"
        if self.num_heads % self.actual_num_kv_heads:
            yield (
                f"num_kv_heads: {self.num_kv_heads} does not divide num_heads={self.num_heads}; allowed is a divisor"
            )
        yield from self._position_problems()

    def _position_problems(self) -> Iterator[str]:
        if self.positions == "sinusoidal" and self.d_model % 2:
            yield f"d_model: {self.d_model} is odd; allowed with sinusoidal positions is an even number"
        if self.positions != "sinusoidal" and self.position_layout != "interleaved":
            yield (
                f"position_layout: {self.position_layout} with {self.positions} positions; "
                "allowed with sinusoidal positions only"
            )
        if self.positions in ("rotary", "none") and self.position_offset:
            yield (
                f"position_offset: {self.position_offset} with positions={self.positions}; "
                "allowed with sinusoidal or learned positions only"
            )
        if self.positions in ("learned", "none") and self.position_base != 10000.0:
            yield (
                f"position_base: {self.position_base} with positions={self.positions}; "
                "allowed with sinusoidal or rotary positions only"
            )
