"""The encoder-decoder Transformer (Vaswani et al., 2017) of the components in `model.components`, and its objective."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from configs import ModelSection
from model.attention import AttentionCache, padding_bias
from model.layout import LayoutKind
from model.loss import Loss, OutputLayer
from model.sublayers import Dropout


@dataclass(kw_only=True, slots=True, frozen=True)
class SpecialIds:
    """Ids of PAD, BOS and EOS; the same on both sides."""

    pad: int
    bos: int
    eos: int


LayerCache = tuple[AttentionCache, AttentionCache]
"""Of self-attention and cross-attention of a decoder layer during a search."""


def self_attention(section: ModelSection) -> nn.Module:
    """A self-attention module, with rotary positions if the section selects them."""
    head_width = section.attention.rotated_width(section.d_model)
    rotation = None if head_width is None else section.positions.build_rotation(section.max_positions, head_width)
    module: nn.Module = section.attention.build(section.d_model, rotation)
    return module


def residual(section: ModelSection, *, is_last: bool) -> nn.Module:
    """The residual connection of a sub-layer. `is_last`: whether the sub-layer is the last of its layer."""
    module: nn.Module = section.residual.build(section.d_model, section.norm, section.dropout, is_last=is_last)
    return module


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, section: ModelSection) -> None:
        super().__init__()
        self.self_attention = self_attention(section)
        self.self_attention_residual = residual(section, is_last=False)
        self.feed_forward = section.feed_forward.build(section.d_model)
        self.feed_forward_residual = residual(section, is_last=True)

    def forward(self, x_BSD: Tensor, bias: Tensor | None) -> Tensor:
        """(B, S, D) to (B, S, D)."""
        x_BSD = self.self_attention_residual(x_BSD, lambda h: self.self_attention(h, h, bias))
        out: Tensor = self.feed_forward_residual(x_BSD, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then feed-forward."""

    def __init__(self, section: ModelSection) -> None:
        super().__init__()
        self.self_attention = self_attention(section)
        self.self_attention_residual = residual(section, is_last=False)
        self.cross_attention = section.attention.build(section.d_model, None)
        self.cross_attention_residual = residual(section, is_last=False)
        self.feed_forward = section.feed_forward.build(section.d_model)
        self.feed_forward_residual = residual(section, is_last=True)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); with a cache, x holds the new positions only."""
        self_cache, cross_cache = cache or (None, None)
        x_BTD = self.self_attention_residual(
            x_BTD,
            # with a cache there is one new position, which may attend to everything, so no mask is needed
            lambda h: self.self_attention(h, h, is_causal=self_cache is None, cache=self_cache),
        )
        x_BTD = self.cross_attention_residual(
            x_BTD, lambda h: self._attend_to_source(h, memory_BSD, memory_bias, cross_cache)
        )
        out: Tensor = self.feed_forward_residual(x_BTD, self.feed_forward)
        return out

    def _attend_to_source(
        self, h_NTD: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None, cache: AttentionCache | None
    ) -> Tensor:
        """Cross-attention treats positions independently, so a sentence's k hypotheses are passed as k T positions."""
        by_source = h_NTD.reshape(memory_BSD.shape[0], -1, h_NTD.shape[-1])
        out: Tensor = self.cross_attention(by_source, memory_BSD, memory_bias, cache=cache, memory_is_fixed=True)
        return out.view_as(h_NTD)


class DecoderState:
    """The state of a search between steps: the layers' caches, the source's padding mask, and the number of positions.

    Once the caches hold its keys and values, `memory_BSD` keeps its rows but has width 0.
    """

    def __init__(self, memory_BSD: Tensor, memory_bias: Tensor | None, num_layers: int) -> None:
        self.memory_BSD = memory_BSD
        self.memory_bias = memory_bias
        self.layers = [(AttentionCache(), AttentionCache()) for _ in range(num_layers)]
        self.position = 0

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep the given hypotheses, in the given order.

        The N rows are the hypotheses of the B sources, N / B consecutive rows for each.

        Args:
            rows: (N'), numbers of the hypotheses to keep.
            sources: (B'), numbers of the sources to keep; None keeps all.
        """
        for self_cache, cross_cache in self.layers:
            self_cache.select(rows)
            if sources is not None:
                cross_cache.select(sources)
        if sources is not None:
            self.memory_BSD = self.memory_BSD.index_select(0, sources)
            if self.memory_bias is not None:
                self.memory_bias = self.memory_bias.index_select(0, sources)


class Stack(nn.Module):
    """A stack of layers, with a final norm if the section has one."""

    def __init__(self, layers: list[nn.Module], section: ModelSection) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = section.norm.build(section.d_model) if section.has_final_norm else nn.Identity()
        self.is_checkpointed = section.activation_checkpointing

    def forward(self, x_BLD: Tensor, *context: Tensor | None) -> Tensor:
        """(B, L, D) to (B, L, D); `context` is passed to every layer."""
        for layer in self.layers:
            if self.is_checkpointed and torch.is_grad_enabled():
                x_BLD = checkpoint(layer, x_BLD, *context, use_reentrant=False)
            else:
                x_BLD = layer(x_BLD, *context)
        out: Tensor = self.norm(x_BLD)
        return out


class TokenEmbedding(nn.Module):
    """Token embedding (times sqrt(D) with `scale_embeddings`), plus positions, then dropout."""

    def __init__(self, vocab_size: int, section: ModelSection) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, section.d_model)
        self.positions = section.positions.build(section.max_positions, section.d_model)
        self.scale = section.d_model**0.5 if section.scale_embeddings else 1.0
        self.dropout = Dropout(section.actual_embedding_dropout)

    def forward(self, ids_BL: Tensor, start: int | Tensor = 0) -> Tensor:
        """(B, L) ids to (B, L, D); see `model.positions` for `start`."""
        out: Tensor = self.dropout(self.positions(self.tokens(ids_BL) * self.scale, start))
        return out


class Transformer(nn.Module):
    """An encoder-decoder Transformer.

    Args:
        section: sizes and components.
        source_vocab_size, target_vocab_size: number of pieces; equal with three-way tied embeddings.
        special: ids of PAD, BOS and EOS.

    Sequences longer than `section.max_positions` raise ValueError.
    """

    def __init__(
        self, section: ModelSection, *, source_vocab_size: int, target_vocab_size: int, special: SpecialIds
    ) -> None:
        super().__init__()
        self.section = section
        self.special = special
        self.max_positions = section.max_positions
        self.source_embedding = TokenEmbedding(source_vocab_size, section)
        self.target_embedding = TokenEmbedding(target_vocab_size, section)
        self.encoder = Stack([EncoderLayer(section) for _ in range(section.encoder_layers)], section)
        self.decoder = Stack([DecoderLayer(section) for _ in range(section.decoder_layers)], section)
        self.output = OutputLayer(section.d_model, target_vocab_size, padding_id=special.pad, bias=section.output_bias)
        section.initialisation.fill(self, section.d_model)
        tied = cast(nn.Parameter, self.target_embedding.tokens.weight)
        if section.tied_embeddings == "three-way":
            assert source_vocab_size == target_vocab_size, "three-way tying needs one vocabulary"
            self.source_embedding.tokens.weight = tied
        if section.tied_embeddings in ("three-way", "decoder"):
            self.output.weight = tied

    def encode(self, source_BS: Tensor) -> tuple[Tensor, Tensor | None]:
        """Padded source ids (B, S) to memory (B, S, D) and the bias (B, 1, 1, S) that masks its padding."""
        x_BSD = self.source_embedding(source_BS)
        bias = padding_bias(source_BS == self.special.pad, x_BSD.dtype)
        return self.encoder(x_BSD, bias), bias

    def decode(self, target_BT: Tensor, memory_BSD: Tensor, memory_bias: Tensor | None) -> Tensor:
        """Target ids (B, T), beginning with BOS, to hidden states (B, T, D). Position t attends to ids up to t.

        Padding at the end needs no mask: earlier positions cannot attend to it, and its own outputs are not used.
        """
        out: Tensor = self.decoder(self.target_embedding(target_BT), memory_BSD, memory_bias)
        return out

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Hidden states (B, T, D) after the decoder; `output` turns them into logits."""
        return self.decode(target_BT, *self.encode(source_BS))

    @property
    def layers(self) -> list[nn.Module]:
        """The layers of the encoder, then those of the decoder."""
        return [*self.encoder.layers, *self.decoder.layers]

    def start(self, source_BS: Tensor) -> DecoderState:
        """Encode the sources and start a search."""
        return DecoderState(*self.encode(source_BS), num_layers=len(self.decoder.layers))

    def step(self, last_N: Tensor, state: DecoderState) -> Tensor:
        """Log-probabilities (N, V) in fp32 of the token after `last_N`; advances the state by one position."""
        x_N1D = self.target_embedding(last_N[:, None], start=state.position)
        for layer, cache in zip(self.decoder.layers, state.layers, strict=True):
            x_N1D = layer(x_N1D, state.memory_BSD, state.memory_bias, cache)
        if state.position == 0:  # the caches now hold its keys and values
            state.memory_BSD = state.memory_BSD[..., :0]
        state.position += 1
        logits: Tensor = self.output(self.decoder.norm(x_N1D)[:, 0])
        return F.log_softmax(logits, dim=-1, dtype=torch.float32)


def build_transformer(
    section: ModelSection, *, source_vocab_size: int, target_vocab_size: int, special: SpecialIds, seed: int
) -> Transformer:
    """Build a model on the CPU. Its initial weights depend on the seed alone; global generators are not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the devices' generators too
        return Transformer(
            section, source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size, special=special
        )


class ObjectiveOutput(NamedTuple):
    """Loss and likelihood, summed over the target tokens of a micro-batch."""

    loss_sum: Tensor
    """The differentiable loss: label-smoothed cross-entropy, in nats, each target's times its scale."""
    nll_sum: Tensor
    """Negative log-likelihood in nats, whatever the scales; the exponential of its mean is the perplexity."""


class Objective(nn.Module):
    """A model and its loss. The trainer uses both only through this class."""

    def __init__(self, model: Transformer, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def layouts(self, device: torch.device, dtype: torch.dtype) -> dict[LayoutKind, str]:
        """The layouts that kernels know, each with why a device cannot have it in a precision; empty if it can.

        Without a choice it is the first of those that it can have.
        """
        return {"none": ""}

    def forward(
        self,
        source_BS: Tensor,
        target_input_BT: Tensor,
        target_output_BT: Tensor,
        *,
        gradient_scale: Callable[[], Tensor] | None = None,
        scales_BT: Tensor | None = None,
    ) -> ObjectiveOutput:
        """Sums over the non-padding targets.

        Args:
            source_BS: source ids, padded, each row with EOS.
            target_input_BT: BOS followed by the target ids, padded.
            target_output_BT: the target ids followed by EOS, padded.
            gradient_scale: gives the factor, () in fp32, by which the caller will multiply the loss before backward.
                Losses that compute their gradients in the forward pass need it in fp16, where small gradients would
                underflow. It is called once the model has run and the loss is to come.
            scales_BT: in fp32, the factor of each target's loss, not of its likelihood.
        """
        hidden_BTD = self.model(source_BS, target_input_BT)
        return ObjectiveOutput(*self.model.output(hidden_BTD, target_output_BT, self.loss, scales_BT, gradient_scale))
