"""The section `model`: sizes, and the parts of the model, each a component with its own fields."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from configs.components import Choice, make
from configs.fields import STRICT, Probability, Size

Layers = Annotated[int, Field(gt=0, le=10_000)]


@dataclass(kw_only=True, slots=True, frozen=True)
class ModelSection:
    """The encoder-decoder Transformer (Vaswani et al., 2017) and its variants."""

    __pydantic_config__ = STRICT

    d_model: Size = 512
    """Width of the residual stream."""
    encoder_layers: Layers = 6
    """Layers of the encoder."""
    decoder_layers: Layers = 6
    """Layers of the decoder."""
    max_positions: Size = 1024
    """Maximum length of a sequence, in pieces with EOS, and number of learned positions."""
    attention: Annotated[Any, Choice("attention", "multi_head")] = field(
        default_factory=lambda: make("attention", "multi_head")
    )
    feed_forward: Annotated[Any, Choice("feed_forward", "relu")] = field(
        default_factory=lambda: make("feed_forward", "relu")
    )
    positions: Annotated[Any, Choice("positions", "sinusoidal")] = field(
        default_factory=lambda: make("positions", "sinusoidal")
    )
    norm: Annotated[Any, Choice("norm", "layer")] = field(default_factory=lambda: make("norm", "layer"))
    residual: Annotated[Any, Choice("residual", "pre")] = field(default_factory=lambda: make("residual", "pre"))
    """The order of a sub-layer, its norm and the residual sum."""
    final_norm: bool | None = None
    """Whether encoder and decoder end with a norm; by default they do if norms come before sub-layers (pre-norm)."""
    tied_embeddings: Literal["three-way", "decoder", "none"] = "three-way"
    """three-way: source embedding, target embedding and output layer share one matrix; decoder: the latter two do."""
    scale_embeddings: bool = True
    """Multiply embeddings by the square root of d_model."""
    output_bias: bool = False
    """Add a bias to the logits."""
    initialisation: Annotated[Any, Choice("initialisation", "xavier")] = field(
        default_factory=lambda: make("initialisation", "xavier")
    )
    dropout: Probability = 0.1
    """Dropout on the output of each sub-layer."""
    embedding_dropout: Probability | None = None
    """Dropout on the sum of embeddings and positions; by default `dropout`."""
    activation_checkpointing: bool = False
    """Keep only the input of each layer and recompute the rest in the backward pass (Chen et al., 2016)."""

    @property
    def has_final_norm(self) -> bool:
        """Whether encoder and decoder end with a norm."""
        return not self.residual.is_post_norm if self.final_norm is None else self.final_norm

    @property
    def actual_embedding_dropout(self) -> float:
        """Dropout on embeddings: `embedding_dropout`, or else `dropout`."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    def problems(self) -> Iterator[str]:
        """Errors that concern several parts of the model, one line each."""
        attention_problems = [f"attention.{line}" for line in self.attention.problems_at(self.d_model)]
        yield from attention_problems
        if not attention_problems:
            yield from self.positions.problems_at(self.d_model, self.attention.rotated_width(self.d_model))
