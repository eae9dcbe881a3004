"""The five reference systems as equations over weights under their own names, for `model.reference.load`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

SIZES = {
    "width": 12,
    "heads": 3,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "source_vocab": 17,
    "target_vocab": 13,
    "length": 11,
}
Sublayer = Callable[[Tensor], Tensor]


@dataclass(kw_only=True)
class Side:
    """Names of an encoder's or a decoder's modules; those of a layer begin behind its number."""

    stack: str
    """Before the number."""
    attentions: list[str]
    feed_forward: tuple[str, str]
    norms: list[str]
    embedding: str
    positions: str


@dataclass(kw_only=True)
class Notebook:
    """A system. This one is notebook_annotated_fr, from which others differ."""

    sides: tuple[Side, Side]
    output: str
    projections: tuple[str, str, str, str] = ("linears.0", "linears.1", "linears.2", "linears.3")
    norm_names: tuple[str, str] = ("a_2", "b_2")
    num_heads: int = 3
    dropout: float = 0.1
    training: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)

    attention_dropout = 0.1
    has_final_norms = True
    scales_embeddings = True
    has_projection_biases = True
    base = 10_000.0
    inner = 20
    head_width: int | None = None

    def build(self, sizes: dict[str, int]) -> None:
        """Random weights; none is 0 or 1."""
        width, self.num_heads = sizes["width"], sizes["heads"]
        heads = self.num_heads * (self.head_width or width // self.num_heads)
        inner = sizes.get("inner", self.inner)
        for side, name in zip(self.sides, ("encoder", "decoder"), strict=True):
            vocab = sizes["source_vocab" if name == "encoder" else "target_vocab"]
            self.weights[f"{side.embedding}.weight"] = torch.randn(vocab, width)
            for layer in range(sizes[f"{name}_layers"]):
                at = f"{side.stack}.{layer}"
                for attention in side.attentions:
                    *given, out = self.projections
                    for projection in given:
                        self._linear_weights(f"{at}.{attention}.{projection}", width, heads, self.has_projection_biases)
                    self._linear_weights(f"{at}.{attention}.{out}", heads, width)
                self._linear_weights(f"{at}.{side.feed_forward[0]}", width, inner)
                self._linear_weights(f"{at}.{side.feed_forward[1]}", inner, width)
                for norm in side.norms:
                    self._norm_weights(f"{at}.{norm}", width)
            if self.has_final_norms:
                self._norm_weights(f"{name}.norm", width)
            self.weights |= self._position_weights(side.positions, sizes["length"], width)
        self._linear_weights(self.output, width, sizes["target_vocab"])

    def _linear_weights(self, name: str, inputs: int, outputs: int, has_bias: bool = True) -> None:
        self.weights[f"{name}.weight"] = torch.randn(outputs, inputs) * inputs**-0.5
        if has_bias:
            self.weights[f"{name}.bias"] = 0.3 * torch.randn(outputs)

    def _norm_weights(self, name: str, width: int) -> None:
        weight, bias = self.norm_names
        self.weights |= {f"{name}.{weight}": 1 + 0.2 * torch.randn(width), f"{name}.{bias}": 0.2 * torch.randn(width)}

    def _position_weights(self, name: str, length: int, width: int) -> dict[str, Tensor]:
        """(1, length, width), element by element."""
        table = torch.zeros(1, length, width)
        for position in range(length):
            for i in range(0, width, 2):
                angle = position / self.base ** (i / width)
                table[0, position, i], table[0, position, i + 1] = math.sin(angle), math.cos(angle)
        return {f"{name}.pe": table}

    def state_dict(self) -> dict[str, Tensor]:
        """As the notebook saves it."""
        return dict(self.weights)

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """What the notebook gives for (B, S) and (B, T) ids: log-probabilities, or logits."""
        hidden_source = (source == 0)[:, None, None, :]
        memory = self._stack(0, source, hidden_source)
        future = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        return self._given(self._linear(self.output, self._stack(1, target, future, memory, hidden_source)))

    def _given(self, logits: Tensor) -> Tensor:
        return F.log_softmax(logits, -1)

    def _stack(self, number: int, ids: Tensor, hidden: Tensor, *memory: Tensor) -> Tensor:
        side = self.sides[number]
        x, layer = self._embed(side, ids), 0
        while f"{side.stack}.{layer}.{side.norms[0]}.{self.norm_names[0]}" in self.weights:
            x = self._layer(side, f"{side.stack}.{layer}", x, hidden, *memory)
            layer += 1
        return self._norm(f"{'decoder' if number else 'encoder'}.norm", x) if self.has_final_norms else x

    def _layer(self, side: Side, at: str, x: Tensor, hidden: Tensor, *memory: Tensor) -> Tensor:
        norms = [f"{at}.{norm}" for norm in side.norms]
        x = self._residual(norms[0], x, lambda h: self._attend(f"{at}.{side.attentions[0]}", h, h, hidden))
        if memory:
            x = self._residual(norms[1], x, lambda h: self._attend(f"{at}.{side.attentions[1]}", h, *memory))
        return self._last_residual(norms[-1], x, lambda h: self._feed_forward(side, at, h))

    def _embed(self, side: Side, ids: Tensor) -> Tensor:
        table = self.weights[f"{side.embedding}.weight"]
        scale = math.sqrt(table.shape[1]) if self.scales_embeddings else 1.0
        return self.drop(table[ids] * scale + self._positions(side, ids.shape[1]))

    def _positions(self, side: Side, length: int) -> Tensor:
        return self.weights[f"{side.positions}.pe"][0, :length]

    def drop(self, x: Tensor, p: float = 0.1) -> Tensor:
        """Dropout."""
        return F.dropout(x, p, self.training)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.weights[f"{name}.{end}"] for end in self.norm_names)
        return weight * (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.std(-1, keepdim=True) ** 2 + 1e-6) + bias

    def _residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.drop(sublayer(self._norm(norm, x)), self.dropout)

    def _last_residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self._residual(norm, x, sublayer)

    def _divisor(self, width: int) -> float:
        return math.sqrt(width // self.num_heads)

    def _attend(self, name: str, queries: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        *given, out = (f"{name}.{projection}" for projection in self.projections)
        projected = [self._linear(n, x) for n, x in zip(given, (queries, memory, memory), strict=True)]
        q, k, v = (x.view(*x.shape[:2], self.num_heads, -1).transpose(1, 2) for x in projected)
        scores = (q @ k.transpose(-2, -1) / self._divisor(projected[0].shape[-1])).masked_fill(hidden, -1e9)
        heads = self.drop(scores.softmax(-1), self.attention_dropout) @ v
        return self._linear(out, heads.transpose(1, 2).flatten(2))

    def _feed_forward(self, side: Side, at: str, x: Tensor) -> Tensor:
        inner, outer = (f"{at}.{name}" for name in side.feed_forward)
        return self._linear(outer, self.drop(self._activation(self._linear(inner, x))))

    def _activation(self, x: Tensor) -> Tensor:
        return x


class PostNormEs(Notebook):
    """notebook_postnorm_es."""

    base = 1000.0
    has_final_norms = has_projection_biases = False

    def _norm_weights(self, name: str, width: int) -> None:
        super()._norm_weights(name, 1)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.weights[f"{name}.{end}"] for end in self.norm_names)
        return weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + bias

    def _residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.drop(self._norm(norm, x + sublayer(x)))

    def _activation(self, x: Tensor) -> Tensor:
        return F.relu(x)


class PreNormViz(PostNormEs):
    """notebook_prenorm_viz."""

    base = 10_000.0
    has_final_norms = has_projection_biases = True

    def _residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + self.drop(sublayer(self._norm(norm, x)), 0.5)


class GeluDk(Notebook):
    """notebook_gelu_dk."""

    attention_dropout = 0.0
    scales_embeddings = False
    head_width: int | None = 6
    inner = 48

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """The padding of the target is hidden too."""
        hidden_source = (source == 0)[:, None, None, :]
        memory = self._stack(0, source, hidden_source)
        hidden = torch.ones(target.shape[1], target.shape[1]).triu(1).bool() | (target == 0)[:, None, None, :]
        return self._linear(self.output, self._stack(1, target, hidden, memory, hidden_source))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self._norm(norm, x + sublayer(x))

    def _last_residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.drop(self._norm(norm, x + self.drop(sublayer(x))))

    def _feed_forward(self, side: Side, at: str, x: Tensor) -> Tensor:
        inner, outer = (f"{at}.{name}" for name in side.feed_forward)
        return self._linear(outer, F.gelu(self._linear(inner, x)))


class LearnedPos(GeluDk):
    """notebook_learned_pos."""

    has_final_norms = False
    head_width = None

    def _given(self, logits: Tensor) -> Tensor:
        return logits

    __call__ = Notebook.__call__

    def _position_weights(self, name: str, length: int, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": torch.randn(length, width)}

    def _positions(self, side: Side, length: int) -> Tensor:
        return self.weights[f"{side.positions}.weight"][:length]

    def _divisor(self, width: int) -> float:
        return math.sqrt(width)

    def _residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self.drop(self._norm(norm, x + sublayer(x)))

    def _last_residual(self, norm: str, x: Tensor, sublayer: Sublayer) -> Tensor:
        return self._residual(norm, x, sublayer)

    def _feed_forward(self, side: Side, at: str, x: Tensor) -> Tensor:
        inner, outer = (f"{at}.{name}" for name in side.feed_forward)
        return self._linear(outer, F.relu(self._linear(inner, x)))


def _blocks(first: str) -> tuple[Side, Side]:
    return (
        Side(
            stack="encoder.layers",
            attentions=["self_attention_block"],
            feed_forward=(f"feed_forward_block.{first}", "feed_forward_block.linear_2"),
            norms=["residual_connections.0.norm", "residual_connections.1.norm"],
            embedding="src_embed.embedding",
            positions="src_pos",
        ),
        Side(
            stack="decoder.layers",
            attentions=["self_attention_block", "cross_attention_block"],
            feed_forward=(f"feed_forward_block.{first}", "feed_forward_block.linear_2"),
            norms=[f"residual_connections.{i}.norm" for i in range(3)],
            embedding="tgt_embed.embedding",
            positions="tgt_pos",
        ),
    )


_W = ("w_q", "w_k", "w_v", "w_o")
_MADE: dict[str, Callable[[], Notebook]] = {
    "notebook_postnorm_es": lambda: PostNormEs(
        sides=_blocks("linear_1"), output="projection_layer.proj", projections=_W, norm_names=("alpha", "beta")
    ),
    "notebook_prenorm_viz": lambda: PreNormViz(
        sides=_blocks("linear_l"), output="projection_layer.proj", projections=_W, norm_names=("alpha", "bias")
    ),
    "notebook_annotated_fr": lambda: Notebook(
        sides=(
            Side(
                stack="encoder.layers",
                attentions=["self_attn"],
                feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
                norms=["sublayer.0.norm", "sublayer.1.norm"],
                embedding="src_embed.0.lut",
                positions="src_embed.1",
            ),
            Side(
                stack="decoder.layers",
                attentions=["self_attn", "src_attn"],
                feed_forward=("feed_forward.w_1", "feed_forward.w_2"),
                norms=["sublayer.0.norm", "sublayer.1.norm", "sublayer.2.norm"],
                embedding="tgt_embed.0.lut",
                positions="tgt_embed.1",
            ),
        ),
        output="generator.proj",
    ),
    "notebook_gelu_dk": lambda: GeluDk(
        sides=(
            Side(
                stack="encoder.transformer_blocks",
                attentions=["attention"],
                feed_forward=("ff.0", "ff.2"),
                norms=["norm1", "norm2"],
                embedding="encoder.embedding",
                positions="encoder.pos_encoding",
            ),
            Side(
                stack="decoder.transformer_blocks",
                attentions=["attention_1", "attention_2"],
                feed_forward=("ff.0", "ff.2"),
                norms=["norm1", "norm2", "norm3"],
                embedding="decoder.embedding",
                positions="decoder.pos_encoding",
            ),
        ),
        output="decoder.out",
        projections=("query", "key", "value", "out"),
        norm_names=("weight", "bias"),
    ),
    "notebook_learned_pos": lambda: LearnedPos(
        sides=(
            Side(
                stack="encoder.layers",
                attentions=["attention"],
                feed_forward=("feed_forward.0", "feed_forward.2"),
                norms=["norm1", "norm2"],
                embedding="encoder.word_embedding",
                positions="encoder.position_embedding",
            ),
            Side(
                stack="decoder.layers",
                attentions=["attention", "transformer_block.attention"],
                feed_forward=("transformer_block.feed_forward.0", "transformer_block.feed_forward.2"),
                norms=["norm", "transformer_block.norm1", "transformer_block.norm2"],
                embedding="decoder.word_embedding",
                positions="decoder.position_embedding",
            ),
        ),
        output="decoder.fc_out",
        projections=("queries", "keys", "values", "fc_out"),
        norm_names=("weight", "bias"),
    ),
}


def tiny_notebook(preset: str, *, seed: int = 1, **changes: int) -> Notebook:
    """A notebook's model with some thousand weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        notebook = _MADE[preset]()
        notebook.build({**SIZES, **changes})
    return notebook


def log_probabilities(notebook: Notebook, source: Tensor, target: Tensor) -> Tensor:
    """What a notebook gives, as log-probabilities: three give them themselves, and of them it is the identity."""
    return F.log_softmax(notebook(source, target), dim=-1)
