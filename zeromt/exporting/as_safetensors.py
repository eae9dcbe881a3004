"""Export as one safetensors file under this project's own names, with configuration and tokenizer."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from configs import UserError, load_saved, save_run
from configs.process.files.inside import name_of, opened
from data_pipeline.tokenizer import Tokenizer
from model import Transformer
from trainer.checkpoint.model_files import build_model
from trainer.inference.loading import TrainedModel
from zeromt.exporting.check import ExportError, Sample, check_logits, logits_of

WEIGHTS = "model.safetensors"
CONFIG = "config.yaml"


def export(trained: TrainedModel, folder: Path, sample: Sample, *, dtype: torch.dtype) -> list[str]:
    """Write the folder and check it; returns notes for the user.

    Raises:
        ExportError: the file does not hold the model's weights.
        OSError: it cannot be written.
    """
    weights = {name: p.detach().to(dtype).contiguous() for name, p in trained.model.named_parameters()}
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    save_run(trained.config, folder / CONFIG)
    trained.tokenizer.save(folder)
    written = load_file(folder / WEIGHTS)
    for name, tensor in weights.items():
        if name not in written or not written[name].equal(tensor):
            raise ExportError(f"export: {name} was not read back as it was written; nothing is exported")
    if dtype != torch.float32:
        return [f"every tensor is the model's, in {str(dtype).removeprefix('torch.')}"]
    again, _ = load_exported(folder)
    largest = check_logits(trained.model, sample, lambda s, t: logits_of(again, s, t))
    return [f"logits within {largest:.1g} of the model's"]


def load_exported(folder: Path) -> tuple[Transformer, Tokenizer]:
    """Load such a folder: the model in fp32 on the CPU, and its tokenizer.

    Raises:
        UserError: the folder is not what `export` wrote.
    """
    config, tokenizer = load_saved(folder / CONFIG), Tokenizer.load(folder)
    model = build_model(config.model, tokenizer, seed=config.seed)
    try:
        with opened(folder / WEIGHTS) as file:
            weights = load_file(name_of(file))
    except (SafetensorError, OSError) as error:
        raise UserError(f"{folder / WEIGHTS}: cannot be read: {error}") from error
    parameters = dict(model.named_parameters())
    if weights.keys() != parameters.keys():
        raise UserError(f"{folder / WEIGHTS}: names differ from this model's")
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
    return model.eval(), tokenizer
