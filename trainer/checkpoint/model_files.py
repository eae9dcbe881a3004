"""A plain model for a tokenizer, and its weights from a checkpoint. Needs no DeepSpeed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import torch

from configs import ModelSection, UserError
from configs.components.model import UndeclaredError
from data_pipeline.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from model import SpecialIds, Transformer, build_transformer
from model.kernels import use_kernels
from model.parameters import Vocabularies, parameters
from trainer.checkpoint.format import Checkpoint, StoredTensors
from trainer.ranks.precision import Kernels, working_kernels

TABLE_NUMBERS = 1 << 24
"""Numbers in a table of positions that a small model may have; a larger model may have as many as weights."""


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


def check_sizes(section: ModelSection, tokenizer: Tokenizer, weights: StoredTensors, where: object) -> None:
    """Compare a configuration with the headers of the weights, before memory is taken for a model.

    Raises:
        UserError: the weights are not of such a model; `where` begins the message.
    """
    shapes = {name: weights.shape(name) for name in weights}
    check_bounds(section, shapes, where)
    vocabularies = Vocabularies(source=tokenizer.source_vocab_size, target=tokenizer.target_vocab_size)
    check_shapes(section, vocabularies, shapes, where)


def check_bounds(section: ModelSection, shapes: Mapping[str, Sequence[int]], where: object) -> None:
    """Check what no shape tells: the number of layers, and of positions, whose table may not be stored.

    Raises:
        UserError: there are too many for these weights.
    """
    layers = section.encoder_layers + section.decoder_layers
    if layers > len(shapes):
        raise UserError(f"{where}: has {len(shapes):,} tensors, too few for the {layers:,} layers of its configuration")
    rotated = section.attention.rotated_width(section.d_model) or 0
    numbers = section.max_positions * max(section.d_model, layers * rotated)
    if numbers > (most := max(TABLE_NUMBERS, sum(map(math.prod, shapes.values())))):
        raise UserError(
            f"{where}: max_positions {section.max_positions:,} of its configuration makes tables of {numbers:,} "
            f"numbers; allowed is {most:,} beside such weights"
        )


def check_shapes(
    section: ModelSection,
    vocabularies: Vocabularies,
    shapes: Mapping[str, Sequence[int]],
    where: object,
    name_of: Callable[[str], str] = str,
) -> None:
    """Compare all names and shapes; `name_of` makes a parameter's name one of `shapes`. First `check_bounds`.

    Raises:
        UserError: a tensor is missing or has another shape.
    """
    try:
        wanted = parameters(section, vocabularies)
    except UndeclaredError:  # of a plugin; no run of others loads one
        return
    for parameter in wanted:
        name = name_of(parameter.name)
        if name not in shapes:
            raise UserError(f"{where}: {name} is missing")
        if tuple(shapes[name]) != parameter.shape:
            raise UserError(f"{where}: {name} is {tuple(shapes[name])}; allowed is {parameter.shape}")


def load_model(
    checkpoint: Checkpoint, section: ModelSection, tokenizer: Tokenizer, *, seed: int, raw: bool
) -> Transformer:
    """The model of a checkpoint, in fp32 on the CPU; for `raw` see `load_weights`.

    Raises:
        UserError: the weights are not of such a model.
    """
    check_sizes(section, tokenizer, checkpoint.stored(checkpoint.weights_kind(raw=raw)), checkpoint.folder)
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
        raw: take the weights themselves, even if there is a moving average of them.

    Raises:
        UserError: the names or shapes are not the model's.
    """
    fill(model, checkpoint.tensors(checkpoint.weights_kind(raw=raw)), checkpoint.folder)


def fill(model: torch.nn.Module, tensors: Iterable[tuple[str, torch.Tensor]], where: Path) -> None:
    """Fill a plain model with tensors by name.

    Raises:
        UserError: the names or shapes are not the model's; the message begins with `where`.
    """
    parameters = dict(model.named_parameters())
    seen = set()
    with torch.no_grad():
        for name, tensor in tensors:
            if name not in parameters or parameters[name].shape != tensor.shape:
                raise UserError(f"{where}: {name} {tuple(tensor.shape)} is not of this model")
            parameters[name].copy_(tensor)
            seen.add(name)
    if missing := sorted(parameters.keys() - seen):
        raise UserError(f"{where}: {missing[0]} is missing")
