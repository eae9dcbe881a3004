"""Checkpoints of Hugging Face Transformers: Marian, Pegasus as this project exports it, M2M100 and NLLB.

Their files are read without Transformers, and weights only as safetensors: a pickled `pytorch_model.bin` can run code.
Every tensor of a checkpoint is used, or an error names it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs import ModelSection, UserError, model_section
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from model import SpecialIds, Transformer, build_transformer
from model.components.positions import Sinusoidal
from model.parameters import Vocabularies as Sizes
from model.parameters import parameters
from model.positions import SinusoidalPositions
from trainer.checkpoint.format import StoredTensors
from zeromt.exporting.as_huggingface import their_name
from zeromt.importing.pieces import Side, Vocabularies, read_vocabularies
from zeromt.importing.settings import KINDS, activations, read_config
from zeromt.importing.weights import check_rows, embedding_names, listed, read_embeddings, read_weights, ties

NEVER = -100.0
"""The bias of pieces that their model cannot generate."""
_BIAS = "final_logits_bias"
_POSITIONS = {
    f"model.{stack}.embed_positions.{end}": f"{side}_embedding"
    for stack, side in (("encoder", "source"), ("decoder", "target"))
    for end in ("weight", "weights")
}
"""Tables of sinusoids in older checkpoints, and this project's module with the same table."""
_TABLE_TOLERANCE = 1e-2
"""Tolerance between tables of sinusoids, which are rounded in half precision."""
_TABLE_NUMBERS = 1 << 24
"""Numbers in a table of positions that a small model may have; a larger model may have as many as weights."""
_VERSIONS = ("model.encoder.version", "model.decoder.version")
"""Tensors that fairseq's conversion left in some checkpoints; they are not weights."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Loaded:
    """The contents of a checkpoint."""

    model: Transformer
    """The model, in fp32 on the CPU."""
    vocabularies: Vocabularies
    config: dict[str, Any]
    """Its `config.json`, with defaults filled in."""


def load_huggingface(folder: Path) -> tuple[Transformer, Tokenizer]:
    """Load a checkpoint: the model in fp32 on the CPU, and its tokenizer.

    Raises:
        UserError: it is of another architecture, or is not whole.
    """
    loaded = load_checkpoint(folder)
    return loaded.model, loaded.vocabularies.tokenizer


def load_checkpoint(folder: Path) -> Loaded:
    """Read and check a checkpoint.

    Raises:
        UserError: it is of another architecture, is not whole, or holds something that this project would not use.
    """
    config = read_config(folder)
    weights = read_weights(folder)
    matrices = read_embeddings(weights, config)
    check_rows(matrices, config)
    sizes = (len(matrices["source_embedding.tokens.weight"]), len(matrices["output.weight"]))
    vocabularies = read_vocabularies(folder, config, sizes=sizes)
    bias = _output_bias(weights, config, vocabularies.target, sizes[1])
    section = _section(config, vocabularies, has_bias=bool(bias.any()))
    _check_sizes(section, vocabularies, weights, config, folder)
    model = build_transformer(
        section,
        source_vocab_size=len(vocabularies.source.rows),
        target_vocab_size=len(vocabularies.target.rows),
        special=SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID),
        seed=0,
    )
    ours = {
        "source_embedding.tokens.weight": matrices["source_embedding.tokens.weight"][vocabularies.source.rows],
        "target_embedding.tokens.weight": matrices["target_embedding.tokens.weight"][vocabularies.target.rows],
        "output.weight": matrices["output.weight"][vocabularies.target.rows],
        "output.bias": bias,
    }
    _check_positions(model, weights, config)
    _fill(model, ours, weights)
    return Loaded(model=model.eval(), vocabularies=vocabularies, config=config)


def has_tags_on_both_sides(folder: Path) -> bool:
    """Whether sources and translations each begin with a tag of their language.

    Raises:
        UserError: it is not a checkpoint.
    """
    return bool(read_config(folder)["model_type"] == "m2m_100")


def _section(config: Mapping[str, Any], vocabularies: Vocabularies, *, has_bias: bool) -> ModelSection:
    """The model's options."""
    kind = config["model_type"]
    fixed = KINDS[kind].options
    offset = config["pad_token_id"] + 1 if kind == "m2m_100" else 0
    options = {
        **fixed,
        "tied_embeddings": ties(config, is_joint=vocabularies.tokenizer.is_joint),
        "positions": {**fixed["positions"], "offset": offset},
        "attention": {"num_heads": config["encoder_attention_heads"], "dropout": config["attention_dropout"]},
        "feed_forward": {
            "kind": activations()[config["activation_function"]],
            "d_ff": config["encoder_ffn_dim"],
            "dropout": config["activation_dropout"],
        },
        "d_model": config["d_model"],
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "max_positions": config["max_position_embeddings"],
        "scale_embeddings": config["scale_embedding"],
        "output_bias": has_bias,
        "dropout": config["dropout"],
    }
    return model_section(**options)


def _output_bias(weights: StoredTensors, config: Mapping[str, Any], target: Side, size: int) -> Tensor:
    """Their bias of the logits, which also excludes duplicate rows from the softmax.

    Raises:
        UserError: it is missing, of the wrong size, or present although their model has none.
    """
    theirs = torch.zeros(size)
    if _BIAS in weights:
        theirs = weights[_BIAS].float().flatten()
    elif KINDS[config["model_type"]].has_bias:
        raise UserError(f"--huggingface: {_BIAS} is missing; copy the whole checkpoint anew")
    if theirs.shape != (size,):
        raise UserError(f"--huggingface: {_BIAS} has {len(theirs)} numbers; allowed is {size}, one for each piece")
    if not KINDS[config["model_type"]].has_bias and theirs.any():
        raise UserError(f"--huggingface: {_BIAS} is not zero, and {config['model_type']} has none; remove it")
    bias = theirs[target.rows]
    bias[target.never] = NEVER
    return bias


def _check_sizes(
    section: ModelSection, vocabularies: Vocabularies, weights: StoredTensors, config: Mapping[str, Any], folder: Path
) -> None:
    """Check, before memory is taken for the model, that exactly its weights are there.

    Raises:
        UserError: naming what is missing, left over, or of another shape.
    """
    shapes = {name: tuple(weights.shape(name)) for name in weights}
    layers = section.encoder_layers + section.decoder_layers
    if layers > len(shapes):
        raise UserError(
            f"--huggingface: {folder} has {len(shapes):,} tensors, too few for the {layers:,} layers of its config.json"
        )
    most = max(_TABLE_NUMBERS, sum(map(math.prod, shapes.values()))) // section.d_model
    if section.max_positions > most:
        raise UserError(
            f"--huggingface: {folder}: max_position_embeddings {section.max_positions:,} of its config.json; "
            f"allowed is {most:,} beside such weights"
        )
    sizes = Sizes(source=len(vocabularies.source.rows), target=len(vocabularies.target.rows))
    wanted = {name: p.shape for p in parameters(section, sizes) if (name := their_name(p.name)) is not None}
    _check_names(list(wanted), weights, config, folder)
    for name, shape in wanted.items():
        if shapes[name] != shape:
            raise UserError(f"--huggingface: {folder}: {name} is {shapes[name]}; allowed is {shape}")


def _check_names(wanted: Sequence[str], weights: StoredTensors, config: Mapping[str, Any], folder: Path) -> None:
    """Check that exactly the weights of the model are there.

    Raises:
        UserError: naming what is missing or left over.
    """
    if missing := [name for name in wanted if name not in weights]:
        others = f", and so are {listed(missing[1:])}" if missing[1:] else ""
        raise UserError(
            f"--huggingface: {missing[0]} is missing in {folder}{others}; give a complete checkpoint, with as many "
            "layers as its config.json says"
        )
    known = {*wanted, *embedding_names(config), _BIAS, *_POSITIONS, *_VERSIONS}
    if unknown := sorted(name for name in weights if name not in known):
        raise UserError(
            f"--huggingface: {folder} holds {listed(unknown)}, which no {config['model_type']} model of its "
            "config.json has; give the config.json of these weights, or remove them"
        )


def _check_positions(model: Transformer, weights: StoredTensors, config: Mapping[str, Any]) -> None:
    """Check that stored positions are the expected sinusoids.

    Raises:
        UserError: they are not.
    """
    chosen = model.section.positions
    assert isinstance(chosen, Sinusoidal), "as KINDS says"
    first = chosen.offset
    for name, ours in _POSITIONS.items():
        if name not in weights:
            continue
        positions = model.get_submodule(ours).positions
        assert isinstance(positions, SinusoidalPositions)
        stored = weights[name].float()[first : first + len(positions.table)]
        difference = (stored - positions.table).abs().max() if stored.shape == positions.table.shape else None
        if difference is None or not difference <= _TABLE_TOLERANCE:
            raise UserError(
                f"--huggingface: {name} holds other positions than the sinusoids of {config['model_type']} with "
                f"max_position_embeddings {config['max_position_embeddings']}; allowed are those"
            )


def _fill(model: Transformer, ours: Mapping[str, Tensor], weights: StoredTensors) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs = their_name(name)
            value = ours[name] if theirs is None else weights[theirs]
            if value.shape != parameter.shape or not value.is_floating_point():
                given = f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
                raise UserError(
                    f"--huggingface: {theirs or name} is {given}; allowed is {tuple(parameter.shape)} in floating point"
                )
            parameter.copy_(value.float())
