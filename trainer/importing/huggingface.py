"""Checkpoints of Hugging Face Transformers: Marian, Pegasus as this project exports it, M2M100 and NLLB.

Their files are read as they are, without Transformers, and weights as safetensors alone: a pickled `pytorch_model.bin`
can run code.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from configs import ModelSection, UserError
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from model import SpecialIds, Transformer, build_transformer
from trainer.checkpoint.format import StoredTensors
from trainer.export.as_huggingface import their_name
from trainer.importing.pieces import Side, Vocabularies, read_json, read_vocabularies

NEVER = -100.0
"""The bias of pieces that their model cannot write."""
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
_TYPES: dict[str, dict[str, Any]] = {
    "marian": {"norm_position": "post", "position_layout": "halves"},
    "pegasus": {"norm_position": "pre", "position_layout": "halves"},
    "m2m_100": {"norm_position": "pre", "position_layout": "tensor2tensor"},
}
_NEEDED = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "encoder_ffn_dim",
    "max_position_embeddings", "activation_function", "pad_token_id", "eos_token_id", "decoder_start_token_id",
)  # fmt: skip
_EMBEDDINGS = {
    "source_embedding.tokens.weight": ("model.encoder.embed_tokens.weight", "model.shared.weight", "lm_head.weight"),
    "target_embedding.tokens.weight": ("model.decoder.embed_tokens.weight", "model.shared.weight", "lm_head.weight"),
    "output.weight": ("lm_head.weight", "model.shared.weight", "model.decoder.embed_tokens.weight"),
}


def load_huggingface(folder: Path) -> tuple[Transformer, Tokenizer]:
    """The model of a checkpoint, in fp32 on the CPU, and its tokenizer.

    Raises:
        UserError: it is of another architecture, or is not whole.
    """
    config = read_json(folder / "config.json")
    _check_config(config)
    weights = _read_weights(folder)
    matrices = {ours: _matrix(weights, theirs) for ours, theirs in _EMBEDDINGS.items()}
    sizes = (len(matrices["source_embedding.tokens.weight"]), len(matrices["output.weight"]))
    vocabularies = read_vocabularies(folder, config, sizes=sizes)
    bias = _output_bias(weights, vocabularies.target)
    section = _section(config, vocabularies, has_bias=bool(bias.any()))
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
    _fill(model, ours, weights, folder)
    return model.eval(), vocabularies.tokenizer


def has_tags_on_both_sides(folder: Path) -> bool:
    """Whether sources begin with their language, and translations with theirs.

    Raises:
        UserError: it is no checkpoint.
    """
    return bool(read_json(folder / "config.json").get("model_type") == "m2m_100")


def _section(config: Mapping[str, Any], vocabularies: Vocabularies, *, has_bias: bool) -> ModelSection:
    """The model's options."""
    kind = config["model_type"]
    options = {
        **_TYPES[kind],
        "tied_embeddings": _ties(config, vocabularies),
        "position_offset": config["pad_token_id"] + 1 if kind == "m2m_100" else 0,
        "d_model": config["d_model"],
        "num_heads": config["encoder_attention_heads"],
        "d_ff": config["encoder_ffn_dim"],
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "max_positions": config["max_position_embeddings"],
        "activation": _ACTIVATIONS[config["activation_function"]],
        "scale_embeddings": bool(config.get("scale_embedding", False)),
        "output_bias": has_bias,
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "activation_dropout": config.get("activation_dropout", 0.0),
    }
    return ModelSection(**options)


def _check_config(config: Mapping[str, Any]) -> None:
    """See that this project has such a model.

    Raises:
        UserError: naming what it does not have, or what is missing.
    """
    kind = config.get("model_type")
    if kind not in _TYPES:
        raise UserError(f"--huggingface: model_type {kind!r}; allowed is {', '.join(_TYPES)}")
    for name in _NEEDED:
        if name not in config:
            raise UserError(f"--huggingface: config.json has no {name}; allowed is a whole checkpoint")
        if name != "activation_function" and not isinstance(config[name], int):
            raise UserError(f"--huggingface: {name} {config[name]!r}; allowed is a whole number")
    for name, allowed in (
        ("decoder_attention_heads", config["encoder_attention_heads"]),
        ("decoder_ffn_dim", config["encoder_ffn_dim"]),
        ("normalize_embedding", False),
        ("normalize_before", kind != "marian"),
        ("static_position_embeddings", True),
    ):
        if config.get(name, allowed) != allowed:
            raise UserError(f"--huggingface: {name} {config[name]!r} of {kind}; allowed is {allowed!r}")
    if config["activation_function"] not in _ACTIVATIONS:
        found, allowed = config["activation_function"], ", ".join(_ACTIVATIONS)
        raise UserError(f"--huggingface: activation_function {found!r}; allowed is {allowed}")


def _ties(config: Mapping[str, Any], vocabularies: Vocabularies) -> str:
    """Three-way where both sides have one tokenizer too: theirs may cut source and target in two ways."""
    if not config.get("tie_word_embeddings", True):
        return "none"
    is_shared = config.get("share_encoder_decoder_embeddings", True)
    return "three-way" if is_shared and vocabularies.tokenizer.is_joint else "decoder"


def _read_weights(folder: Path) -> StoredTensors:
    paths = sorted(folder.glob("model*.safetensors"))
    if not paths:
        raise UserError(
            f"--huggingface: {folder} has no model.safetensors; allowed is a checkpoint that was saved as safetensors "
            "(pickled weights are not read)"
        )
    return StoredTensors(paths)


def _matrix(weights: StoredTensors, names: tuple[str, ...]) -> Tensor:
    """The first that is there: Transformers stores a tied matrix once, under one of its names."""
    for name in names:
        if name in weights:
            return weights[name].float()
    raise UserError(f"--huggingface: {names[0]} is missing; allowed is a whole translation model")


def _output_bias(weights: StoredTensors, target: Side) -> Tensor:
    """Theirs, and what keeps doubled rows out of the softmax."""
    theirs = weights["final_logits_bias"].float().flatten() if "final_logits_bias" in weights else None
    bias = torch.zeros(len(target.rows)) if theirs is None else theirs[target.rows]
    bias[target.never] = NEVER
    return bias


def _fill(model: Transformer, ours: Mapping[str, Tensor], weights: StoredTensors, folder: Path) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            theirs = their_name(name)
            if theirs is None:
                value = ours[name]
            elif theirs in weights:
                value = weights[theirs].float()
            else:
                raise UserError(f"--huggingface: {theirs} is missing in {folder}; allowed is a whole checkpoint")
            if value.shape != parameter.shape:
                raise UserError(
                    f"--huggingface: {theirs or name} is {tuple(value.shape)}; allowed is {tuple(parameter.shape)}"
                )
            parameter.copy_(value)
