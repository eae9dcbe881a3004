"""A plain model for a tokenizer, and its weights from a checkpoint. Needs no DeepSpeed."""

from collections.abc import Mapping
from pathlib import Path

import torch

from configs import ModelSection, UserError
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from model import SpecialIds, Transformer, build_transformer
from model.kernels import use_kernels
from trainer.checkpoint.format import Checkpoint
from trainer.ranks.precision import Kernels, working_kernels


def build_model(section: ModelSection, tokenizer: Tokenizer, *, seed: int) -> Transformer:
    """A new model for a tokenizer's vocabularies.

    Raises:
        UserError: three-way tying with two vocabularies.
    """
    if section.tied_embeddings == "three-way" and not tokenizer.is_joint:
        raise UserError("model.tied_embeddings: three-way with two vocabularies; allowed is decoder or none")
    return build_transformer(
        section,
        source_vocab_size=tokenizer.source_vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        special=SpecialIds(pad=PAD_ID, bos=BOS_ID, eos=EOS_ID),
        seed=seed,
    )


def load_model(
    checkpoint: Checkpoint, section: ModelSection, tokenizer: Tokenizer, *, seed: int, raw: bool
) -> Transformer:
    """The model of a checkpoint, in fp32 on the CPU; for `raw` see `load_weights`.

    Raises:
        UserError: the weights are not of such a model.
    """
    model = build_model(section, tokenizer, seed=seed)
    load_weights(checkpoint, model, raw=raw)
    return model


def place(model: Transformer, device: torch.device, dtype: torch.dtype, kernels: Kernels = "auto") -> Transformer:
    """The model moved to a device and a precision, with the device's kernels or what `engine.kernels` says."""
    model = model.to(device, dtype)
    use_kernels(model, device, working_kernels(kernels, device, dtype))
    return model


def load_weights(checkpoint: Checkpoint, model: torch.nn.Module, *, raw: bool) -> None:
    """Fill a plain model from a checkpoint.

    Args:
        checkpoint: with the weights.
        model: to fill.
        raw: take the weights themselves, even if there is a moving average.

    Raises:
        UserError: the names or shapes are not the model's.
    """
    fill(model, checkpoint.stored(checkpoint.weights_kind(raw=raw)), checkpoint.folder)


def fill(model: torch.nn.Module, tensors: Mapping[str, torch.Tensor], where: Path) -> None:
    """Fill a plain model with tensors by name.

    Raises:
        UserError: the names or shapes are not the model's; the message begins with `where`.
    """
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name not in parameters or parameters[name].shape != tensor.shape:
                raise UserError(f"{where}: {name} {tuple(tensor.shape)} is not of this model")
            parameters[name].copy_(tensor)
    if missing := sorted(parameters.keys() - tensors.keys()):
        raise UserError(f"{where}: {missing[0]} is missing")
