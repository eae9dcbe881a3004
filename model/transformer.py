"""The encoder-decoder Transformer (Vaswani et al., 2017); its variants are components chosen by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from configs import ModelSection
from model.attention import AttentionCache, MultiHeadAttention, padding_bias
from model.dropout import Dropout
from model.feed_forward import FEED_FORWARDS
from model.loss import OutputLayer
from model.positions import POSITIONS


@dataclass(kw_only=True, slots=True, frozen=True)
class SpecialIds:
    """Ids that carry no text; the same on both sides."""

    pad: int
    bos: int
    eos: int


class PreNorm(nn.Module):
    """x + dropout(sublayer(norm(x))) (Xiong et al., 2020): trains without a delicate warm-up."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out


class PostNorm(nn.Module):
    """norm(x + dropout(sublayer(x))): the order of the original paper."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return out


RESIDUALS: dict[str, type[PreNorm] | type[PostNorm]] = {"pre": PreNorm, "post": PostNorm}


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, section: ModelSection) -> None:
        super().__init__()
        residual = RESIDUALS[section.norm_position]
        self.self_attention = MultiHeadAttention(section.d_model, section.num_heads, section.attention_dropout)
        self.self_attention_residual = residual(section.d_model, section.dropout)
        self.feed_forward = FEED_FORWARDS[section.activation](
            section.d_model, section.d_ff, section.activation, section.activation_dropout
        )
        self.feed_forward_residual = residual(section.d_model, section.dropout)

    def forward(self, x_BSD: Tensor, bias: Tensor | None) -> Tensor:
        """(B, S, D) to (B, S, D)."""
        x_BSD = self.self_attention_residual(x_BSD, lambda h: self.self_attention(h, h, bias))
        out: Tensor = self.feed_forward_residual(x_BSD, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then feed-forward."""

    def __init__(self, section: ModelSection) -> None:
        super().__init__()
        residual = RESIDUALS[section.norm_position]
        self.self_attention = MultiHeadAttention(section.d_model, section.num_heads, section.attention_dropout)
        self.self_attention_residual = residual(section.d_model, section.dropout)
        self.cross_attention = MultiHeadAttention(section.d_model, section.num_heads, section.attention_dropout)
        self.cross_attention_residual = residual(section.d_model, section.dropout)
        self.feed_forward = FEED_FORWARDS[section.activation](
            section.d_model, section.d_ff, section.activation, section.activation_dropout
        )
        self.feed_forward_residual = residual(section.d_model, section.dropout)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None, cache: "LayerCache | None" = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); with a cache, T counts the new positions only."""
        self_cache = cache.self_attention if cache is not None else None
        cross_cache = cache.cross_attention if cache is not None else None
        x_BTD = self.self_attention_residual(
            x_BTD,
            # one new position at a time sees all that the cache holds, so there is nothing to hide from it
            lambda h: self.self_attention(h, h, is_causal=self_cache is None, cache=self_cache),
        )
        x_BTD = self.cross_attention_residual(
            x_BTD,
            lambda h: self.cross_attention(h, memory_BSD, memory_bias, cache=cross_cache, memory_is_fixed=True),
        )
        out: Tensor = self.feed_forward_residual(x_BTD, self.feed_forward)
        return out


class LayerCache:
    """What search keeps of one decoder layer."""

    def __init__(self) -> None:
        self.self_attention = AttentionCache()
        self.cross_attention = AttentionCache()


class DecoderState:
    """What search keeps between steps: the layers' caches, the source's padding, and positions decoded so far."""

    def __init__(self, memory_BSD: Tensor, memory_bias: Tensor | None, num_layers: int) -> None:
        self.memory_BSD = memory_BSD
        self.memory_bias = memory_bias
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.position = 0

    def select(self, rows: Tensor, *, same_sources: bool = False) -> None:
        """Keep these rows, in this order.

        Args:
            same_sources: every row keeps its sentence (hypotheses trade places within it), so that what depends on the
                source alone stays.
        """
        for layer in self.layers:
            layer.self_attention.select(rows)
            if not same_sources:
                layer.cross_attention.select(rows)
        if not same_sources:
            if self.position == 0:  # after the first step the layers hold its keys and values, and nobody reads it
                self.memory_BSD = self.memory_BSD.index_select(0, rows)
            if self.memory_bias is not None:
                self.memory_bias = self.memory_bias.index_select(0, rows)


class Stack(nn.Module):
    """Layers one after the other, and a norm at the end where the layers are pre-norm."""

    def __init__(self, layers: list[nn.Module], section: ModelSection) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(section.d_model) if section.norm_position == "pre" else nn.Identity()


class TokenEmbedding(nn.Module):
    """Embedding times sqrt(D) where wanted, plus positions, then dropout."""

    def __init__(self, vocab_size: int, section: ModelSection) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, section.d_model)
        self.positions = POSITIONS[section.positions](section.max_positions, section.d_model)
        self.scale = section.d_model**0.5 if section.scale_embeddings else 1.0
        self.dropout = Dropout(section.dropout)

    def forward(self, ids_BL: Tensor, start: int = 0) -> Tensor:
        """(B, L) ids to (B, L, D)."""
        out: Tensor = self.dropout(self.positions(self.tokens(ids_BL) * self.scale, start))
        return out


class Transformer(nn.Module):
    """An encoder-decoder Transformer.

    Args:
        section: sizes and variants.
        source_vocab_size, target_vocab_size: pieces of either vocabulary; equal when the three matrices are tied.
        special: ids of padding, begin and end.

    Sequences longer than `section.max_positions` raise ValueError.
    """

    def __init__(
        self, section: ModelSection, *, source_vocab_size: int, target_vocab_size: int, special: SpecialIds
    ) -> None:
        super().__init__()
        self.special = special
        self.max_positions = section.max_positions
        self.source_embedding = TokenEmbedding(source_vocab_size, section)
        self.target_embedding = TokenEmbedding(target_vocab_size, section)
        self.encoder = Stack([EncoderLayer(section) for _ in range(section.encoder_layers)], section)
        self.decoder = Stack([DecoderLayer(section) for _ in range(section.decoder_layers)], section)
        self.output = OutputLayer(section.d_model, target_vocab_size, padding_id=special.pad)
        self._initialise(section)
        tied = cast(nn.Parameter, self.target_embedding.tokens.weight)
        if section.tied_embeddings == "three-way":
            assert source_vocab_size == target_vocab_size, "three-way tying needs one vocabulary"
            self.source_embedding.tokens.weight = tied
        if section.tied_embeddings in ("three-way", "decoder"):
            self.output.weight = tied

    def _initialise(self, section: ModelSection) -> None:
        """Xavier-uniform matrices (Glorot and Bengio, 2010), zero biases, embeddings of unit length in expectation."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=section.d_model**-0.5)
        nn.init.normal_(self.output.weight, std=section.d_model**-0.5)

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Source ids (B, S), padded, to memory (B, S, D) and the bias (B, 1, 1, S) that hides its padding."""
        x_BSD = self.source_embedding(source_BS)
        bias = padding_bias(source_BS == self.special.pad, x_BSD.dtype)
        for layer in self.encoder.layers:
            x_BSD = layer(x_BSD, bias)
        return self.encoder.norm(x_BSD), bias

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None) -> Tensor:
        """Target ids (B, T), beginning with bos, to hidden states (B, T, D). Position t sees ids up to t.

        Padding at the end needs no mask: no position before it can see it, and its own rows are not used.
        """
        x_BTD = self.target_embedding(target_BT)
        for layer in self.decoder.layers:
            x_BTD = layer(x_BTD, memory_BSD, memory_bias)
        out: Tensor = self.decoder.norm(x_BTD)
        return out

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Hidden states (B, T, D) after the decoder; `output` turns them into logits."""
        return self.decode(target_BT, *self.encode(source_BS))

    def start(self, source_BS: Tensor) -> DecoderState:
        """Encode, and begin a search."""
        return DecoderState(*self.encode(source_BS), num_layers=len(self.decoder.layers))

    def step(self, last_N: Tensor, state: DecoderState) -> Tensor:
        """Log-probabilities (N, V) in fp32 of the token after `last_N`; the state moves on by one position."""
        x_N1D = self.target_embedding(last_N[:, None], start=state.position)
        for layer, cache in zip(self.decoder.layers, state.layers, strict=True):
            x_N1D = layer(x_N1D, state.memory_BSD, state.memory_bias, cache)
        state.position += 1
        logits: Tensor = self.output(self.decoder.norm(x_N1D)[:, 0])
        return F.log_softmax(logits, dim=-1, dtype=torch.float32)


def build_transformer(
    section: ModelSection, *, source_vocab_size: int, target_vocab_size: int, special: SpecialIds, seed: int
) -> Transformer:
    """A model on the CPU whose initial weights depend on the seed alone. Global generators are left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the devices' generators too
        return Transformer(
            section, source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size, special=special
        )
