"""Converts the weights of a notebook into a Transformer that computes the same function."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from configs import UserError, preset_model
from model.components.multi_head import MultiHead
from model.components.positions import Sinusoidal
from model.positions import SinusoidalPositions
from model.reference.names import NOTEBOOKS, Names
from model.transformer import SpecialIds, Transformer, build_transformer

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
