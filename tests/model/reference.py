"""What model/ is held against: the papers' equations in fp64, one sentence, one head and one position at a time."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from configs import ModelSection
from model import SpecialIds, Transformer, build_transformer

PAD, BOS, EOS = 0, 1, 2
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)


def tiny_section(**changes: Any) -> ModelSection:
    """A Transformer of some thousand weights without dropout."""
    sizes: dict[str, Any] = {
        "d_model": 12,
        "num_heads": 3,
        "d_ff": 20,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "max_positions": 16,
        "dropout": 0.0,
    }
    return ModelSection(**{**sizes, **changes})


def tiny_model(section: ModelSection, *, source_vocab: int = 13, target_vocab: int = 13, seed: int = 1) -> Transformer:
    """A model in evaluation mode; no weight is left at 0 or 1, so that none can be forgotten unseen."""
    model = build_transformer(
        section, source_vocab_size=source_vocab, target_vocab_size=target_vocab, special=SPECIAL, seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def pad(rows: list[list[int]], *, width: int = 0) -> Tensor:
    """Rows of ids as a padded batch, at least `width` wide."""
    width = max(width, *map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def logits_of(model: Transformer, source: Tensor, target_input: Tensor) -> Tensor:
    """Logits (B, T, V) of a full decode, without a cache."""
    logits: Tensor = model.output(model(source, target_input))
    return logits


@dataclass
class PlainTransformer:
    """The model as equations over its named weights, for sentences without padding."""

    section: ModelSection
    weights: dict[str, Tensor]
    """As `named_parameters` gives them: a matrix that is tied stands there once, under the first of its names."""

    @staticmethod
    def of(model: Transformer, section: ModelSection) -> "PlainTransformer":
        weights = {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}
        return PlainTransformer(section=section, weights=weights)

    def logits(self, source: list[int], target_input: list[int]) -> Tensor:
        """(T, V)."""
        tying = self.section.tied_embeddings
        source_matrix = self.weights["source_embedding.tokens.weight"]
        target_matrix = source_matrix if tying == "three-way" else self.weights["target_embedding.tokens.weight"]
        output_matrix = self.weights["output.weight"] if tying == "none" else target_matrix
        x = self._embed("source_embedding", source_matrix, source)
        for i in range(self.section.encoder_layers):
            name = f"encoder.layers.{i}"
            x = self._sublayer(f"{name}.self_attention", x, lambda h, n=name: self._attend(f"{n}.self_attention", h, h))
            x = self._sublayer(f"{name}.feed_forward", x, lambda h, n=name: self._feed_forward(f"{n}.feed_forward", h))
        memory = self._last_norm("encoder", x)
        y = self._embed("target_embedding", target_matrix, target_input)
        for i in range(self.section.decoder_layers):
            name = f"decoder.layers.{i}"
            y = self._sublayer(
                f"{name}.self_attention", y, lambda h, n=name: self._attend(f"{n}.self_attention", h, h, causal=True)
            )
            y = self._sublayer(
                f"{name}.cross_attention", y, lambda h, n=name: self._attend(f"{n}.cross_attention", h, memory)
            )
            y = self._sublayer(f"{name}.feed_forward", y, lambda h, n=name: self._feed_forward(f"{n}.feed_forward", h))
        return self._last_norm("decoder", y) @ output_matrix.T

    def _embed(self, name: str, matrix: Tensor, ids: list[int]) -> Tensor:
        width = self.section.d_model
        scale = math.sqrt(width) if self.section.scale_embeddings else 1.0
        rows = []
        for position, token in enumerate(ids):
            if self.section.positions == "learned":
                where = self.weights[f"{name}.positions.weight"][position]
            else:
                where = torch.tensor(sinusoid(position, width), dtype=torch.float64)
            rows.append(matrix[token] * scale + where)
        return torch.stack(rows)

    def _sublayer(self, name: str, x: Tensor, function: Any) -> Tensor:
        norm = f"{name}_residual.norm"
        if self.section.norm_position == "pre":
            return x + function(self._norm(norm, x))  # type: ignore[no-any-return]
        return self._norm(norm, x + function(x))

    def _last_norm(self, name: str, x: Tensor) -> Tensor:
        return self._norm(f"{name}.norm", x) if self.section.norm_position == "pre" else x

    def _norm(self, name: str, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _attend(self, name: str, queries: Tensor, memory: Tensor, *, causal: bool = False) -> Tensor:
        q, k, v = (self._linear(f"{name}.{n}", x) for n, x in (("query", queries), ("key", memory), ("value", memory)))
        head_width = self.section.d_model // self.section.num_heads
        heads = []
        for head in range(self.section.num_heads):
            part = slice(head * head_width, (head + 1) * head_width)
            rows = []
            for i in range(len(queries)):
                seen = i + 1 if causal else len(memory)
                scores = torch.exp(k[:seen, part] @ q[i, part] / math.sqrt(head_width))
                rows.append(scores / scores.sum() @ v[:seen, part])
            heads.append(torch.stack(rows))
        return self._linear(f"{name}.output", torch.cat(heads, dim=1))

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        inner = self._linear(f"{name}.inner", x)
        if self.section.activation == "relu":
            inner = inner.clamp(min=0)
        elif self.section.activation == "gelu":
            inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
        else:
            gate = self._linear(f"{name}.gate", x)
            inner = gate / (1 + torch.exp(-gate)) * inner
        return self._linear(f"{name}.outer", inner)


def sinusoid(position: int, width: int) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same."""
    angles = [position / 10000 ** (2 * (i // 2) / width) for i in range(width)]
    return [math.sin(a) if i % 2 == 0 else math.cos(a) for i, a in enumerate(angles)]


def smoothed_losses(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """torch's own sums of label-smoothed cross-entropy and of negative log-likelihood."""
    loss = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=label_smoothing, reduction="sum")
    return loss, F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum")
