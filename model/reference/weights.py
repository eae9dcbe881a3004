"""The five notebooks' names for the modules of this project's Transformer, and the import of their weights."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from configs import UserError, preset_model
from model.components.multi_head import MultiHead
from model.components.positions import Sinusoidal
from model.positions import SinusoidalPositions
from model.transformer import SpecialIds, Transformer, build_transformer


@dataclass(kw_only=True, slots=True, frozen=True)
class Names:
    """The module and parameter names of one notebook."""

    modules: dict[str, str]
    """Maps this project's module names to the notebook's."""
    norm_weight: str = "weight"
    norm_bias: str = "bias"
    has_varying_bias: bool = False
    """Whether the projections to queries, keys and values may or may not have biases."""


_PROJECTIONS = ("query", "key", "value", "output")
_W = ("w_q", "w_k", "w_v", "w_o")
_NUMBERED = ("0", "1", "2", "3")
_QUERY = ("query", "key", "value", "out")
_QUERIES = ("queries", "keys", "values", "fc_out")


def _layers(theirs: str, ours: str, parts: dict[str, str]) -> dict[str, str]:
    """Maps this project's names of a layer's modules to the notebook's."""
    return {f"{ours}.layers.L.{part}": f"{theirs}.L.{name}" for part, name in parts.items()}


def _attention(ours: str, theirs: str, *names: str) -> dict[str, str]:
    """Maps the names of the query, key, value and output projections."""
    return {f"{ours}.{part}": f"{theirs}.{n}" for part, n in zip(_PROJECTIONS, names, strict=True)}


_BLOCKS = {
    "source_embedding.tokens": "src_embed.embedding",
    "target_embedding.tokens": "tgt_embed.embedding",
    "output": "projection_layer.proj",
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "self_attention_block", *_W),
            "self_attention_residual.norm": "residual_connections.0.norm",
            "feed_forward.inner": "feed_forward_block.linear_1",
            "feed_forward.outer": "feed_forward_block.linear_2",
            "feed_forward_residual.norm": "residual_connections.1.norm",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "self_attention_block", *_W),
            "self_attention_residual.norm": "residual_connections.0.norm",
            **_attention("cross_attention", "cross_attention_block", *_W),
            "cross_attention_residual.norm": "residual_connections.1.norm",
            "feed_forward.inner": "feed_forward_block.linear_1",
            "feed_forward.outer": "feed_forward_block.linear_2",
            "feed_forward_residual.norm": "residual_connections.2.norm",
        },
    ),
}
_FINAL_NORMS = {"encoder.norm": "encoder.norm", "decoder.norm": "decoder.norm"}

_ANNOTATED = {
    "source_embedding.tokens": "src_embed.0.lut",
    "target_embedding.tokens": "tgt_embed.0.lut",
    "output": "generator.proj",
    **_FINAL_NORMS,
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "self_attn.linears", *_NUMBERED),
            "self_attention_residual.norm": "sublayer.0.norm",
            "feed_forward.inner": "feed_forward.w_1",
            "feed_forward.outer": "feed_forward.w_2",
            "feed_forward_residual.norm": "sublayer.1.norm",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "self_attn.linears", *_NUMBERED),
            "self_attention_residual.norm": "sublayer.0.norm",
            **_attention("cross_attention", "src_attn.linears", *_NUMBERED),
            "cross_attention_residual.norm": "sublayer.1.norm",
            "feed_forward.inner": "feed_forward.w_1",
            "feed_forward.outer": "feed_forward.w_2",
            "feed_forward_residual.norm": "sublayer.2.norm",
        },
    ),
}

_GELU_DK = {
    "source_embedding.tokens": "encoder.embedding",
    "target_embedding.tokens": "decoder.embedding",
    "output": "decoder.out",
    **_FINAL_NORMS,
    **_layers(
        "encoder.transformer_blocks",
        "encoder",
        {
            **_attention("self_attention", "attention", *_QUERY),
            "self_attention_residual.norm": "norm1",
            "feed_forward.inner": "ff.0",
            "feed_forward.outer": "ff.2",
            "feed_forward_residual.norm": "norm2",
        },
    ),
    **_layers(
        "decoder.transformer_blocks",
        "decoder",
        {
            **_attention("self_attention", "attention_1", *_QUERY),
            "self_attention_residual.norm": "norm1",
            **_attention("cross_attention", "attention_2", *_QUERY),
            "cross_attention_residual.norm": "norm2",
            "feed_forward.inner": "ff.0",
            "feed_forward.outer": "ff.2",
            "feed_forward_residual.norm": "norm3",
        },
    ),
}

_LEARNED_POS = {
    "source_embedding.tokens": "encoder.word_embedding",
    "source_embedding.positions": "encoder.position_embedding",
    "target_embedding.tokens": "decoder.word_embedding",
    "target_embedding.positions": "decoder.position_embedding",
    "output": "decoder.fc_out",
    **_layers(
        "encoder.layers",
        "encoder",
        {
            **_attention("self_attention", "attention", *_QUERIES),
            "self_attention_residual.norm": "norm1",
            "feed_forward.inner": "feed_forward.0",
            "feed_forward.outer": "feed_forward.2",
            "feed_forward_residual.norm": "norm2",
        },
    ),
    **_layers(
        "decoder.layers",
        "decoder",
        {
            **_attention("self_attention", "attention", *_QUERIES),
            "self_attention_residual.norm": "norm",
            **_attention("cross_attention", "transformer_block.attention", *_QUERIES),
            "cross_attention_residual.norm": "transformer_block.norm1",
            "feed_forward.inner": "transformer_block.feed_forward.0",
            "feed_forward.outer": "transformer_block.feed_forward.2",
            "feed_forward_residual.norm": "transformer_block.norm2",
        },
    ),
}

NOTEBOOKS = {
    "notebook_postnorm_es": Names(modules=_BLOCKS, norm_weight="alpha", norm_bias="beta"),
    "notebook_prenorm_viz": Names(modules={**_BLOCKS, **_FINAL_NORMS}, norm_weight="alpha"),
    "notebook_annotated_fr": Names(modules=_ANNOTATED, norm_weight="a_2", norm_bias="b_2"),
    "notebook_gelu_dk": Names(modules=_GELU_DK),
    "notebook_learned_pos": Names(modules=_LEARNED_POS, has_varying_bias=True),
}
"""By preset name."""


SPECIAL = SpecialIds(pad=0, bos=1, eos=2)
_TABLE_TOLERANCE = 1e-2
_SHOWN = 4
"""Most names that an error message lists."""


def load(
    preset: str, state: Mapping[str, Tensor], *, num_heads: int, special: SpecialIds = SPECIAL, **overrides: Any
) -> Transformer:
    """Build the model of a reference system from its weights, in fp32 and in evaluation mode.

    Args:
        preset: name of the reference system, a key of `NOTEBOOKS`.
        state: its state dict under its own names, with or without the prefix `module.`. Buffers (position tables and
            masks) are allowed; position tables must equal those of the system. `linear_l` is accepted for `linear_1`.
        num_heads: number of attention heads, which the shapes do not determine.
        special: ids of PAD, BOS and EOS.
        overrides: fields of the section `model`, such as a dropout, which take precedence over the preset and the
            shapes.

    Raises:
        UserError: unknown preset, or tensors are missing, unexpected or of the wrong shape.
        ConfigError: sizes and overrides contradict each other.
    """
    if preset not in NOTEBOOKS:
        raise UserError(f"preset: {preset!r}; allowed is one of {', '.join(NOTEBOOKS)}")
    names = NOTEBOOKS[preset]
    tensors, buffers = _sort(preset, state)
    section = preset_model(preset, _sizes(preset, tensors, buffers, num_heads), overrides)
    vocab_sizes = {
        f"{side}_vocab_size": _tensor(preset, tensors, names.modules[f"{side}_embedding.tokens"]).shape[0]
        for side in ("source", "target")
    }
    model = build_transformer(section, **vocab_sizes, special=special, seed=0)
    theirs = {name: notebook_name(names, name) for name, _ in model.named_parameters()}
    if problems := [*_problems(model, theirs, tensors), *_other_positions(model, buffers)]:
        raise UserError(f"weights of {preset}: {'; '.join(problems)}")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[theirs[name]].view(parameter.shape))
    return model.eval()


def default_num_heads(preset: str) -> int:
    """The number of attention heads of a preset.

    Raises:
        UserError: there is no such preset.
    """
    attention = preset_model(preset).attention
    assert isinstance(attention, MultiHead)
    return attention.num_heads


def notebook_name(names: Names, ours: str) -> str:
    """The notebook's name for a parameter of this project."""
    module, _, kind = ours.rpartition(".")
    layer = re.search(r"\.layers\.(\d+)\.", ours)
    template = names.modules[re.sub(r"\.layers\.\d+\.", ".layers.L.", module)]
    if module.endswith("norm"):
        kind = {"weight": names.norm_weight, "bias": names.norm_bias}[kind]
    return f"{_layer(template, layer.group(1)) if layer else template}.{kind}"


def _layer(template: str, number: str) -> str:
    return template.replace(".L.", f".{number}.")


def _sort(preset: str, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split a state dict into parameters and buffers, with normalised names."""
    parameters: dict[str, Tensor] = {}
    buffers: dict[str, Tensor] = {}
    for key, value in state.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise UserError(f"weights of {preset}: {key!r} is a {kind}, not a tensor; give a state dict of tensors")
        name = key.removeprefix("module.").replace(".linear_l.", ".linear_1.")
        if name in parameters or name in buffers:
            raise UserError(
                f"weights of {preset}: {name} occurs twice, the second time as {key!r}; give each weight once"
            )
        last = name.rpartition(".")[2]
        (buffers if last == "pe" or "mask" in last else parameters)[name] = value
    return parameters, buffers


def _sizes(preset: str, tensors: Mapping[str, Tensor], buffers: Mapping[str, Tensor], num_heads: int) -> dict[str, Any]:
    """The fields of the section `model` that follow from the tensors' shapes."""
    modules = NOTEBOOKS[preset].modules

    def shape(module: str) -> torch.Size:
        return _tensor(preset, tensors, _layer(modules[module], "0")).shape

    width = shape("source_embedding.tokens")[1]
    query_width = shape("encoder.layers.L.self_attention.query")[0]
    if num_heads < 1 or query_width % num_heads:
        raise UserError(f"num_heads: {num_heads} must divide the query width {query_width}")
    attention: dict[str, Any] = {
        "num_heads": num_heads,
        "head_width": None if query_width == width else query_width // num_heads,
    }
    sizes: dict[str, Any] = {
        "d_model": width,
        "attention": attention,
        "feed_forward": {"d_ff": shape("encoder.layers.L.feed_forward.inner")[0]},
    }
    for stack in ("encoder", "decoder"):
        before = modules[f"{stack}.layers.L.self_attention.query"].partition(".L.")[0]
        pattern = re.compile(rf"{re.escape(before)}\.(\d+)\.")
        sizes[f"{stack}_layers"] = 1 + max((int(m.group(1)) for n in tensors if (m := pattern.match(n))), default=0)
    if NOTEBOOKS[preset].has_varying_bias:
        query = _layer(modules["encoder.layers.L.self_attention.query"], "0")
        attention["bias"] = f"{query}.bias" in tensors
    tables = [b.shape[-2] for n, b in buffers.items() if n.endswith("pe") and b.ndim >= 2]
    if "source_embedding.positions" in modules:
        tables = [shape("source_embedding.positions")[0]]
    return sizes | ({"max_positions": min(tables)} if tables else {})


def _tensor(preset: str, tensors: Mapping[str, Tensor], module: str) -> Tensor:
    """The weight matrix of a module."""
    matrix = tensors.get(f"{module}.weight")
    if matrix is None:
        raise UserError(f"weights of {preset}: missing {module}.weight; give all weights under the notebook's names")
    if matrix.ndim != 2:
        raise UserError(f"weights of {preset}: {module}.weight has shape {_show(matrix)}; it must be a matrix")
    return matrix


def _problems(model: Transformer, theirs: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Error messages for tensors that are missing, unexpected, or of the wrong shape or dtype."""
    if missing := [name for name in theirs.values() if name not in tensors]:
        yield f"missing {_list(missing)}"
    if unexpected := sorted(tensors.keys() - set(theirs.values())):
        yield f"unexpected {_list(unexpected)}"
    wrong = []
    for name, parameter in model.named_parameters():
        tensor = tensors.get(theirs[name])
        # a scalar and a vector of one element are the same
        if tensor is not None and not tensor.is_floating_point():
            wrong.append(f"{theirs[name]} is {str(tensor.dtype).removeprefix('torch.')}, must be floating point")
        elif tensor is not None and tensor.shape != parameter.shape and not tensor.numel() == parameter.numel() == 1:
            wrong.append(f"{theirs[name]} is {_show(tensor)}, must be {_show(parameter)}")
    if wrong:
        yield _list(wrong)


def _other_positions(model: Transformer, buffers: Mapping[str, Tensor]) -> Iterator[str]:
    """Error messages for position tables that differ from the model's, such as sinusoids with another base."""
    positions, chosen = model.source_embedding.positions, model.section.positions
    tables = {
        name: b.float().reshape(-1, b.shape[-1])
        for name, b in buffers.items()
        if name.rpartition(".")[2] == "pe" and b.ndim >= 2
    }
    for name, table in sorted(tables.items()):
        ours = positions.table if isinstance(positions, SinusoidalPositions) else None
        if ours is None or not isinstance(chosen, Sinusoidal):
            yield f"unexpected {name}"
        elif table.shape[1] != ours.shape[1] or not _is_close(table[: len(ours)], ours[: len(table)]):
            yield (
                f"{name} differs from the preset's positions, sinusoids with base {chosen.base:g}; other positions are "
                "not supported"
            )


def _is_close(table: Tensor, ours: Tensor) -> bool:
    """Whether two tables are equal up to the error of large angles in half precision."""
    return bool((table - ours).abs().max() <= _TABLE_TOLERANCE)


def _show(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "a scalar"


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
