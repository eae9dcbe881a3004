"""What model/ is held against: the papers' equations in fp64, one sentence, one head and one position at a time."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from configs import ModelSection
from model import SpecialIds, Transformer, build_transformer
from tests.model.flat import flat, section_of

PAD, BOS, EOS = 0, 1, 2
SPECIAL = SpecialIds(pad=PAD, bos=BOS, eos=EOS)
SOURCES = [[5, 9, 3, 12, 7, EOS], [4, EOS], [11, 3, 3, EOS]]
TARGETS = [[6, 5, EOS], [10, 4, 8, 12, EOS], [EOS]]
TARGET_INPUTS = [[BOS, *row[:-1]] for row in TARGETS]


def tiny_section(**changes: Any) -> ModelSection:
    """A Transformer of some thousand weights without dropout."""
    sizes: dict[str, Any] = {"d_model": 12, "num_heads": 3, "d_ff": 20, "encoder_layers": 2, "decoder_layers": 2}
    return section_of(**{**sizes, "max_positions": 16, "dropout": 0.0, **changes})


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

    section: Any
    """See `flat`."""
    weights: dict[str, Tensor]
    """As `named_parameters` gives them: a matrix that is tied stands there once, under the first of its names."""

    @staticmethod
    def of(model: Transformer, section: ModelSection) -> "PlainTransformer":
        weights = {name: p.detach().double().requires_grad_() for name, p in model.named_parameters()}
        return PlainTransformer(section=flat(section), weights=weights)

    def logits(self, source: list[int], target_input: list[int]) -> Tensor:
        """(T, V)."""
        source_matrix = self.weights["source_embedding.tokens.weight"]
        target_matrix = self.weights.get("target_embedding.tokens.weight", source_matrix)
        memory = self._stack("encoder", self._embed("source_embedding", source_matrix, source))
        y = self._stack("decoder", self._embed("target_embedding", target_matrix, target_input), memory)
        logits = y @ self.weights.get("output.weight", target_matrix).T
        return logits + self.weights["output.bias"] if self.section.output_bias else logits

    def _embed(self, name: str, matrix: Tensor, ids: list[int]) -> Tensor:
        scale = math.sqrt(self.section.d_model) if self.section.scale_embeddings else 1.0
        rows = [matrix[token] * scale + self._position(name, position) for position, token in enumerate(ids)]
        return torch.stack(rows)

    def _position(self, name: str, position: int) -> Tensor:
        """What is added to an embedding, element by element."""
        section = self.section
        if section.positions in ("rotary", "none"):
            return torch.zeros(section.d_model)
        half, where = section.d_model // 2, position + section.position_offset
        if section.positions == "learned":
            return self.weights[f"{name}.positions.weight"][where]
        if section.position_layout == "interleaved":
            return torch.tensor(sinusoid(where, section.d_model, section.position_base), dtype=torch.float64)
        steps = half - 1 if section.position_layout == "tensor2tensor" else half
        angles = [where / section.position_base ** (i / steps) for i in range(half)]
        return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)

    def _stack(self, side: str, x: Tensor, memory: Tensor | None = None) -> Tensor:
        section = self.section
        is_pre = section.norm_position == "pre"
        attentions = ["self_attention"] if memory is None else ["self_attention", "cross_attention"]
        for i in range(getattr(section, f"{side}_layers")):
            for name in (f"{side}.layers.{i}.{part}" for part in (*attentions, "feed_forward")):
                h = self._norm(f"{name}_residual.norm", x) if is_pre else x
                x = x + self._sublayer(name, h, memory)
                x = x if is_pre else self._norm(f"{name}_residual.norm", x)
        has_norm = is_pre if section.final_norm is None else section.final_norm
        return self._norm(f"{side}.norm", x) if has_norm else x

    def _sublayer(self, name: str, h: Tensor, memory: Tensor | None) -> Tensor:
        if name.endswith("feed_forward"):
            return self._feed_forward(name, h)
        if name.endswith("self_attention"):
            return self._attend(name, h, h, causal=memory is not None)
        assert memory is not None
        return self._attend(name, h, memory)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, eps, n = self.weights[f"{name}.weight"], self.section.norm_eps, x.shape[-1]
        if self.section.norm == "rms":
            return x / torch.sqrt((x**2).sum(-1, keepdim=True) / n + eps) * weight
        centred = x - x.sum(-1, keepdim=True) / n
        squares = (centred**2).sum(-1, keepdim=True)
        divisor = {
            "layer": torch.sqrt(squares / n + eps),
            "sample": torch.sqrt(squares / (n - 1) + eps),
            "scalar": torch.sqrt(squares / (n - 1)) + eps,
            "scalar_from_ones": torch.sqrt(squares / (n - 1)) + eps,
        }[self.section.norm]
        out: Tensor = centred / divisor * weight + self.weights[f"{name}.bias"]
        return out

    def _linear(self, name: str, x: Tensor, *, bias: bool) -> Tensor:
        out = x @ self.weights[f"{name}.weight"].T
        return out + self.weights[f"{name}.bias"] if bias else out

    def _attend(self, name: str, queries: Tensor, memory: Tensor, *, causal: bool = False) -> Tensor:
        s = self.section
        q, k, v = (
            self._linear(f"{name}.{part}", x, bias=s.attention_bias)
            for part, x in (("query", queries), ("key", memory), ("value", memory))
        )
        width = s.head_width if s.head_width is not None else s.d_model // s.num_heads
        share = s.num_heads // (s.num_kv_heads if s.num_kv_heads is not None else s.num_heads)
        divisor = math.sqrt(s.d_model if s.attention_scale == "model_width" else width)
        heads = []
        for head in range(s.num_heads):
            q_LK, k_SK, v_SK = (
                x[:, h * width : (h + 1) * width] for x, h in ((q, head), (k, head // share), (v, head // share))
            )
            if s.positions == "rotary" and "self_attention" in name:
                q_LK, k_SK = self._rotate(q_LK), self._rotate(k_SK)
            rows = []
            for i in range(len(queries)):
                seen = i + 1 if causal else len(memory)
                scores = torch.exp(k_SK[:seen] @ q_LK[i] / divisor)
                rows.append(scores / scores.sum() @ v_SK[:seen])
            heads.append(torch.stack(rows))
        return self._linear(f"{name}.output", torch.cat(heads, dim=1), bias=s.attention_output_bias)

    def _rotate(self, x: Tensor) -> Tensor:
        """Each position's vector by the block-diagonal matrix of Su et al. (2021), equation 15."""
        rows = []
        for position, row in enumerate(x):
            width = len(row)
            matrix = torch.zeros(width, width, dtype=x.dtype)
            for i in range(width // 2):
                angle = position * self.section.position_base ** (-2 * i / width)
                turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
                matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor(turn, dtype=x.dtype)
            rows.append(matrix @ row)
        return torch.stack(rows)

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        bias, activation = self.section.feed_forward_bias, self.section.activation
        inner = self._linear(f"{name}.inner", x, bias=bias)
        gate = self._linear(f"{name}.gate", x, bias=bias) if activation == "swiglu" else inner
        activated = {
            "relu": inner.clamp(min=0),
            "gelu": inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2))),
            "silu": inner / (1 + torch.exp(-inner)),
            "swiglu": gate / (1 + torch.exp(-gate)) * inner,
            "none": inner,
        }
        return self._linear(f"{name}.outer", activated[activation], bias=bias)


def sinusoid(position: int, width: int, base: float = 10000) -> list[float]:
    """PE(pos, 2i) = sin(pos / base^(2i/d)), PE(pos, 2i+1) = cos of the same."""
    angles = [position / base ** (2 * (i // 2) / width) for i in range(width)]
    return [math.sin(a) if i % 2 == 0 else math.cos(a) for i, a in enumerate(angles)]


def smoothed_losses(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """torch's own sums of label-smoothed cross-entropy and of negative log-likelihood."""
    loss = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=label_smoothing, reduction="sum")
    return loss, F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum")
