"""The matrices of the vocabularies. Which of them are tied is in config.json; a missing one does not count as tied."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from configs import UserError
from trainer.checkpoint.format import StoredTensors
from zeromt.importing.weights import listed

_SHARED = "model.shared.weight"
_NAMES = {
    "source_embedding.tokens.weight": "model.encoder.embed_tokens.weight",
    "target_embedding.tokens.weight": "model.decoder.embed_tokens.weight",
    "output.weight": "lm_head.weight",
}
"""This project's names to theirs."""


def ties(config: Mapping[str, Any], *, is_joint: bool) -> str:
    """`model.tied_embeddings`; three-way only if both sides also have one tokenizer: theirs may have two."""
    if not config["tie_word_embeddings"]:
        return "none"
    return "three-way" if config["share_encoder_decoder_embeddings"] and is_joint else "decoder"


def embedding_names(config: Mapping[str, Any]) -> set[str]:
    """Possible names of a vocabulary's matrices in such a checkpoint."""
    return {*_NAMES.values(), *([_SHARED] if config["share_encoder_decoder_embeddings"] else [])}


def read_embeddings(weights: StoredTensors, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """The three matrices under this project's names, in fp32. If theirs are tied, one may be stored for several.

    Raises:
        UserError: a matrix is missing and not tied to another, or tied ones differ.
    """
    source, target, output = _NAMES.values()
    if not config["tie_word_embeddings"]:  # then `model.shared` is not used
        groups: list[tuple[str, ...]] = [(source,), (target,), (output,)]
    elif config["share_encoder_decoder_embeddings"]:
        groups = [(source, target, output, _SHARED)]
    else:
        groups = [(source,), (target, output)]
    matrices = {name: _read(weights, group) for group in groups for name in group}
    return {ours: matrices[theirs] for ours, theirs in _NAMES.items()}


def check_rows(matrices: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Check that the matrices have the rows and columns that config.json says.

    Raises:
        UserError: one has others.
    """
    sizes = dict.fromkeys(_NAMES, config.get("vocab_size"))
    if not config["share_encoder_decoder_embeddings"]:
        target = config.get("decoder_vocab_size") or config.get("vocab_size")
        sizes |= dict.fromkeys(("target_embedding.tokens.weight", "output.weight"), target)
    for ours, size in sizes.items():
        shape = tuple(matrices[ours].shape)
        if shape != (size or shape[0], config["d_model"]):
            raise UserError(
                f"--huggingface: {_NAMES[ours]} is {shape}; allowed is {(size or shape[0], config['d_model'])}, "
                "as config.json says"
            )


def _read(weights: StoredTensors, group: tuple[str, ...]) -> Tensor:
    """The one matrix that all names of a tied group stand for."""
    stored = [name for name in group if name in weights]
    if not stored:
        why = f", and so is {listed(group[1:])}" if len(group) > 1 else ", which config.json ties to no other matrix"
        raise UserError(f"--huggingface: {group[0]} is missing{why}; copy the whole checkpoint anew")
    first = weights[stored[0]].float()
    if unlike := [name for name in stored[1:] if not first.equal(weights[name].float())]:
        raise UserError(
            f"--huggingface: {stored[0]} and {listed(unlike)} differ, and config.json ties them; set "
            "tie_word_embeddings to false if they are meant to differ, or copy the whole checkpoint anew"
        )
    return first
