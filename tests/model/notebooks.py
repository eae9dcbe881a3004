"""The five reference systems as equations over weights, saved under their own names, for `model.reference.load`."""

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

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
SUBLAYERS = {"encoder": ("self", "ff"), "decoder": ("causal", "cross", "end")}
"""Attentions, then feed-forward; so that each of a side has a name of its own for the tables below."""
Sublayer = Callable[[Tensor], Tensor]


def by_variance(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.std(-1, keepdim=True) ** 2 + 1e-6)


def by_deviation(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def before(book: "Notebook", norm: str, x: Tensor, sublayer: Sublayer, is_last: bool) -> Tensor:
    return x + book.drop(sublayer(book.norm(norm, x)), book.dropout)


def behind(book: "Notebook", norm: str, x: Tensor, sublayer: Sublayer, is_last: bool) -> Tensor:
    return book.drop(book.norm(norm, x + sublayer(x)))


def behind_in_blocks(book: "Notebook", norm: str, x: Tensor, sublayer: Sublayer, is_last: bool) -> Tensor:
    if is_last:
        return book.drop(book.norm(norm, x + book.drop(sublayer(x))))
    return book.norm(norm, x + sublayer(x))


class Notebook(SimpleNamespace):
    """A system, by settings. Where it saves its weights, its own `names` are put in for those here, in this order."""

    def build(self) -> None:
        """Random weights; none is 0 or 1."""
        width, heads = self.sizes["width"], self.sizes["heads"] * self.head_width
        for side, vocab in (("encoder", self.sizes["source_vocab"]), ("decoder", self.sizes["target_vocab"])):
            self.weights[f"{side}.tokens.weight"] = torch.randn(vocab, width)
            if self.has_learned_positions:
                self.weights[f"{side}.places.weight"] = torch.randn(self.sizes["length"], width)
            else:
                self.weights[f"{side}.places.pe"] = self._sinusoids(self.sizes["length"], width)
            for at in self._layers(side):
                *attentions, feed_forward = (f"{at}.{name}" for name in SUBLAYERS[side])
                for name in attentions:
                    for given in "qkv":
                        self._make_linear(f"{name}.{given}", width, heads, self.has_projection_biases)
                    self._make_linear(f"{name}.o", heads, width)
                self._make_linear(f"{feed_forward}.first", width, self.inner)
                self._make_linear(f"{feed_forward}.second", self.inner, width)
                for name in (*attentions, feed_forward):
                    self._make_norm(f"{name}.norm", width)
            if self.has_final_norms:
                self._make_norm(f"{side}.norm", width)
        self._make_linear("output", width, self.sizes["target_vocab"])

    def _make_linear(self, name: str, inputs: int, outputs: int, has_bias: bool = True) -> None:
        self.weights[f"{name}.weight"] = torch.randn(outputs, inputs) * inputs**-0.5
        if has_bias:
            self.weights[f"{name}.bias"] = 0.3 * torch.randn(outputs)

    def _make_norm(self, name: str, width: int) -> None:
        shape = 1 if self.has_scalar_norms else width
        self.weights |= {f"{name}.weight": 1 + 0.2 * torch.randn(shape), f"{name}.bias": 0.2 * torch.randn(shape)}

    def _sinusoids(self, length: int, width: int) -> Tensor:
        """(1, length, width)."""
        angles = torch.arange(length)[:, None] / self.base ** (torch.arange(0, width, 2).double() / width)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[None].float()

    def _layers(self, side: str) -> Iterator[str]:
        return (f"{side}.layers.{number}" for number in range(self.sizes[f"{side}_layers"]))

    def state_dict(self) -> dict[str, Tensor]:
        """As the notebook saves it."""
        renamed = {}
        for name, tensor in self.weights.items():
            for ours, theirs in self.names.items():
                name = name.replace(ours, theirs)
            renamed[name] = tensor
        return renamed

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits for (B, S) and (B, T) ids."""
        is_padding = (source == 0)[:, None, None, :]
        is_hidden = torch.ones(target.shape[1], target.shape[1]).triu(1).bool()
        if self.hides_target_padding:
            is_hidden = is_hidden | (target == 0)[:, None, None, :]
        memory = self._stack("encoder", source, lambda name, h: self._attend(name, h, h, is_padding))
        attentions: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
            "causal": lambda h: (h, is_hidden),
            "cross": lambda h: (memory, is_padding),
        }
        hidden = self._stack(
            "decoder", target, lambda name, h: self._attend(name, h, *attentions[name.rpartition(".")[2]](h))
        )
        return self._linear("output", hidden)

    def _stack(self, side: str, ids: Tensor, attend: Callable[[str, Tensor], Tensor]) -> Tensor:
        table = self.weights[f"{side}.tokens.weight"]
        places = self.weights.get(f"{side}.places.weight", self.weights.get(f"{side}.places.pe"))
        assert places is not None
        scale = math.sqrt(table.shape[1]) if self.scales_embeddings else 1.0
        x = self.drop(table[ids] * scale + places.view(-1, table.shape[1])[: ids.shape[1]])
        *attentions, last = SUBLAYERS[side]
        for at in self._layers(side):
            for name in (f"{at}.{attention}" for attention in attentions):
                x = self.residual(self, f"{name}.norm", x, lambda h, name=name: attend(name, h), False)
            name = f"{at}.{last}"
            x = self.residual(self, f"{name}.norm", x, lambda h, name=name: self._feed_forward(name, h), True)
        return self.norm(f"{side}.norm", x) if self.has_final_norms else x

    def drop(self, x: Tensor, p: float = 0.1) -> Tensor:
        """Dropout."""
        return F.dropout(x, p, self.training)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Over the width."""
        normed: Tensor = self.weights[f"{name}.weight"] * self.normalise(x) + self.weights[f"{name}.bias"]
        return normed

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def _attend(self, name: str, queries: Tensor, memory: Tensor, is_hidden: Tensor) -> Tensor:
        inputs = {"q": queries, "k": memory, "v": memory}
        projected = [self._linear(f"{name}.{part}", x) for part, x in inputs.items()]
        q, k, v = (x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2) for x in projected)
        divisor = math.sqrt(queries.shape[-1] if self.divides_by_width else self.head_width)
        scores = (q @ k.transpose(-2, -1) / divisor).masked_fill(is_hidden, -1e9)
        heads = self.drop(scores.softmax(-1), self.attention_dropout) @ v
        return self._linear(f"{name}.o", heads.transpose(1, 2).flatten(2))

    def _feed_forward(self, name: str, x: Tensor) -> Tensor:
        inner = self.activation(self._linear(f"{name}.first", x))
        return self._linear(f"{name}.second", self.drop(inner, self.inner_dropout))


_BLOCKS = {
    ".self.norm": ".residual_connections.0.norm",
    ".ff.norm": ".residual_connections.1.norm",
    ".causal.norm": ".residual_connections.0.norm",
    ".cross.norm": ".residual_connections.1.norm",
    ".end.norm": ".residual_connections.2.norm",
    ".self.": ".self_attention_block.w_",
    ".causal.": ".self_attention_block.w_",
    ".cross.": ".cross_attention_block.w_",
    ".second": ".feed_forward_block.linear_2",
    ".ff": "",
    ".end": "",
    "encoder.tokens": "src_embed.embedding",
    "decoder.tokens": "tgt_embed.embedding",
    "encoder.places": "src_pos",
    "decoder.places": "tgt_pos",
    "output": "projection_layer.proj",
    "norm.weight": "norm.alpha",
}
_ANNOTATED = {
    ".self.norm": ".sublayer.0.norm",
    ".ff.norm": ".sublayer.1.norm",
    ".causal.norm": ".sublayer.0.norm",
    ".cross.norm": ".sublayer.1.norm",
    ".end.norm": ".sublayer.2.norm",
    ".self.": ".self_attn.",
    ".causal.": ".self_attn.",
    ".cross.": ".src_attn.",
    ".q.": ".linears.0.",
    ".k.": ".linears.1.",
    ".v.": ".linears.2.",
    ".o.": ".linears.3.",
    ".ff": ".feed_forward",
    ".end": ".feed_forward",
    ".first": ".w_1",
    ".second": ".w_2",
    "encoder.tokens": "src_embed.0.lut",
    "decoder.tokens": "tgt_embed.0.lut",
    "encoder.places": "src_embed.1",
    "decoder.places": "tgt_embed.1",
    "output": "generator.proj",
    "norm.weight": "norm.a_2",
    "norm.bias": "norm.b_2",
}
_GELU = {
    ".layers.": ".transformer_blocks.",
    ".self.norm": ".norm1",
    ".ff.norm": ".norm2",
    ".causal.norm": ".norm1",
    ".cross.norm": ".norm2",
    ".end.norm": ".norm3",
    ".self.": ".attention.",
    ".causal.": ".attention_1.",
    ".cross.": ".attention_2.",
    ".q.": ".query.",
    ".k.": ".key.",
    ".v.": ".value.",
    ".o.": ".out.",
    ".end": ".ff",
    ".first": ".0",
    ".second": ".2",
    "tokens": "embedding",
    "places": "pos_encoding",
    "output": "decoder.out",
}
_LEARNED = {
    ".self.norm": ".norm1",
    ".ff.norm": ".norm2",
    ".causal.norm": ".norm",
    ".cross.norm": ".transformer_block.norm1",
    ".end.norm": ".transformer_block.norm2",
    ".self.": ".attention.",
    ".causal.": ".attention.",
    ".cross.": ".transformer_block.attention.",
    ".q.": ".queries.",
    ".k.": ".keys.",
    ".v.": ".values.",
    ".o.": ".fc_out.",
    ".ff": ".feed_forward",
    ".end": ".transformer_block.feed_forward",
    ".first": ".0",
    ".second": ".2",
    "tokens": "word_embedding",
    "places": "position_embedding",
    "output": "decoder.fc_out",
}
_ANNOTATED_FR: dict[str, Any] = {
    "names": _ANNOTATED,
    "normalise": by_variance,
    "residual": before,
    "activation": torch.clone,
    "base": 10_000.0,
    "inner": 20,
    "head_width": 4,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "inner_dropout": 0.1,
    "has_scalar_norms": False,
    "has_final_norms": True,
    "has_projection_biases": True,
    "has_learned_positions": False,
    "scales_embeddings": True,
    "hides_target_padding": False,
    "divides_by_width": False,
    "training": False,
}
"""From which the others differ."""
_SCALAR: dict[str, Any] = {"normalise": by_deviation, "has_scalar_norms": True, "activation": F.relu}
_LAYER_NORM: dict[str, Any] = {
    "normalise": lambda x: F.layer_norm(x, x.shape[-1:]),
    "attention_dropout": 0.0,
    "inner_dropout": 0.0,
    "inner": 48,
    "scales_embeddings": False,
}
_SYSTEMS: dict[str, dict[str, Any]] = {
    "notebook_postnorm_es": {
        "names": {**_BLOCKS, ".first": ".feed_forward_block.linear_1", "norm.bias": "norm.beta"},
        **_SCALAR,
        "residual": behind,
        "base": 1000.0,
        "has_final_norms": False,
        "has_projection_biases": False,
    },
    "notebook_prenorm_viz": {
        "names": {**_BLOCKS, ".first": ".feed_forward_block.linear_l"},
        **_SCALAR,
        "dropout": 0.5,
    },
    "notebook_annotated_fr": {},
    "notebook_gelu_dk": {
        "names": _GELU,
        **_LAYER_NORM,
        "residual": behind_in_blocks,
        "activation": F.gelu,
        "head_width": 6,
        "hides_target_padding": True,
    },
    "notebook_learned_pos": {
        "names": _LEARNED,
        **_LAYER_NORM,
        "residual": behind,
        "activation": F.relu,
        "has_final_norms": False,
        "has_learned_positions": True,
        "divides_by_width": True,
    },
}


def tiny_notebook(preset: str, *, seed: int = 1, **changes: int) -> Notebook:
    """A notebook's model with some thousand weights."""
    notebook = Notebook(**{**_ANNOTATED_FR, **_SYSTEMS[preset]}, sizes={**SIZES, **changes}, weights={})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        notebook.build()
    return notebook


def log_probabilities(notebook: Notebook, source: Tensor, target: Tensor) -> Tensor:
    """What a notebook gives, as log-probabilities: three give them themselves."""
    return F.log_softmax(notebook(source, target), dim=-1)
