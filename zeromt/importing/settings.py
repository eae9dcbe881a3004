"""Reads the configuration files of a Transformers checkpoint, and refuses what this project does not support.

Every setting that changes the model's function or the format of its text is either used by a reader or refused here by
name. Old files hold fields that Transformers no longer reads; if one says that the model was trained differently, it is
refused too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs import UserError
from configs.components import kinds
from configs.process.files import is_file
from zeromt.importing.json_files import CONFIG, TOKENIZER_CONFIG, read_json


def activations() -> dict[str, str]:
    """Kinds of `model.feed_forward` by Transformers' names of their activations."""
    parts = kinds("feed_forward").items()
    by_name = {part.program_names["huggingface"]: kind for kind, part in parts if "huggingface" in part.programs}
    return {"swish": by_name["silu"], **by_name}


@dataclass(kw_only=True, slots=True, frozen=True)
class Kind:
    """A family of Transformers models."""

    options: Mapping[str, Any]
    """Fields of the section `model` that are the same for the whole family."""
    model: str
    """Its model class in Transformers."""
    tokenizers: tuple[str, ...]
    """Tokenizer classes whose text format is known."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Transformers' defaults for fields missing in config.json."""
    has_bias: bool = True
    """Whether the logits have a bias."""
    is_pre_norm: bool = True


KINDS = {
    "marian": Kind(
        options={"residual": "post", "positions": {"layout": "halves"}},
        model="MarianMTModel",
        tokenizers=("MarianTokenizer",),
        is_pre_norm=False,
    ),
    "pegasus": Kind(
        options={"residual": "pre", "positions": {"layout": "halves"}},
        model="PegasusForConditionalGeneration",
        tokenizers=("MarianTokenizer",),
    ),
    "m2m_100": Kind(
        options={"residual": "pre", "positions": {"layout": "tensor2tensor"}},
        model="M2M100ForConditionalGeneration",
        tokenizers=("M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast"),
        defaults={"scale_embedding": True, "attention_dropout": 0.1},
        has_bias=False,
    ),
}
_DEFAULTS = {
    "scale_embedding": False,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
}
_NEEDED = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "encoder_ffn_dim",
    "max_position_embeddings", "activation_function", "pad_token_id", "eos_token_id", "decoder_start_token_id",
)  # fmt: skip
_FIXED = {
    "normalize_embedding": False,
    "layernorm_embedding": False,
    "do_blenderbot_90_layernorm": False,
    "static_position_embeddings": True,
    "position_embedding_type": "absolute",
    "tie_encoder_decoder": False,
    "is_decoder": False,
    "is_encoder_decoder": True,
    "pruned_heads": {},
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "cross_attention_hidden_size": None,
    "quantization_config": None,
    "auto_map": None,
}
"""Fields of which only one value is supported."""


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json`, with Transformers' defaults filled in.

    Raises:
        UserError: it cannot be read, or names something that this project does not have.
    """
    tree = read_json(folder / CONFIG)
    kind = tree.get("model_type") if isinstance(tree, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise UserError(f"--huggingface: model_type {kind!r}; allowed is {', '.join(KINDS)}")
    given = {name: value for name, value in tree.items() if value is not None or name in _NEEDED}
    config: dict[str, Any] = {**_DEFAULTS, **KINDS[tree["model_type"]].defaults, **given}
    _check_config(config)
    return config


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """`tokenizer_config.json`; empty if there is none.

    Raises:
        UserError: it cannot be read.
    """
    path = folder / TOKENIZER_CONFIG
    tree = read_json(path) if is_file(path) else {}
    return tree if isinstance(tree, dict) else {}


def _check_config(config: Mapping[str, Any]) -> None:
    """Check that this project supports the model.

    Raises:
        UserError: naming what is unsupported or missing.
    """
    name_of_kind = config["model_type"]
    kind = KINDS[name_of_kind]
    for name in _NEEDED:
        if name not in config:
            raise UserError(f"--huggingface: config.json has no {name}; give a complete checkpoint")
        if name != "activation_function" and (not isinstance(config[name], int) or isinstance(config[name], bool)):
            raise UserError(f"--huggingface: {name} {config[name]!r}; allowed is a whole number")
    for name in ("scale_embedding", "tie_word_embeddings", "share_encoder_decoder_embeddings"):
        if not isinstance(config[name], bool):
            raise UserError(f"--huggingface: {name} {config[name]!r}; allowed is true or false")
    fixed = {
        "decoder_attention_heads": config["encoder_attention_heads"],
        "decoder_ffn_dim": config["encoder_ffn_dim"],
        "normalize_before": kind.is_pre_norm,
        "add_final_layer_norm": kind.is_pre_norm,
        **_FIXED,
    }
    for name, allowed in fixed.items():
        if config.get(name, allowed) != allowed:
            raise UserError(f"--huggingface: {name} {config[name]!r} of {name_of_kind}; allowed is {allowed!r}")
    if config["activation_function"] not in list(activations()):
        activation, names = config["activation_function"], ", ".join(activations())
        raise UserError(f"--huggingface: activation_function {activation!r}; allowed is {names}")
    architectures = config.get("architectures") or [kind.model]
    if not isinstance(architectures, list) or kind.model not in architectures:
        raise UserError(f"--huggingface: architectures {config['architectures']!r}; allowed is [{kind.model!r}]")


def check_tokenizer_config(settings: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Check that the tokenizer combines text, languages and EOS as this project does.

    Args:
        settings: see `read_tokenizer_config`.
        config: see `read_config`.

    Raises:
        UserError: naming the setting that differs.
    """
    allowed = KINDS[config["model_type"]].tokenizers
    for where, class_name in (
        (TOKENIZER_CONFIG, settings.get("tokenizer_class")),
        (CONFIG, config.get("tokenizer_class")),
    ):
        if class_name not in (None, *allowed):
            raise UserError(
                f"--huggingface: {where}: tokenizer_class {class_name!r}, whose format of text is not known; "
                f"allowed is {', '.join(allowed)}"
            )
    if settings.get("legacy_behaviour"):
        raise UserError(
            f"--huggingface: {TOKENIZER_CONFIG}: legacy_behaviour true puts a source's language behind EOS, "
            "which zeromt has no format for; if the model was trained with the language in front, as NLLB was, set "
            "it to false"
        )
    if settings.get("sp_model_kwargs"):
        raise UserError(
            f"--huggingface: {TOKENIZER_CONFIG}: sp_model_kwargs {settings['sp_model_kwargs']!r} draw or change "
            "pieces; allowed is none"
        )
