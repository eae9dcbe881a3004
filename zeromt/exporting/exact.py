"""The model to export: in fp32 on the CPU, whatever precision it was trained in."""

from pathlib import Path

import torch

from configs import load_saved
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.model_files import load_model
from trainer.inference.loading import TrainedModel, with_checkpoints
from trainer.runs.layout import CONFIG


def load_exact(path: Path, *, raw: bool = False) -> TrainedModel:
    """Load the newest whole checkpoint of a run, or the one that was named; for `raw` see `load_weights`.

    Raises:
        UserError: there is no whole checkpoint.
    """
    return with_checkpoints([str(path)], lambda checkpoints: _load(checkpoints[0], raw=raw))


def _load(checkpoint: Checkpoint, *, raw: bool) -> TrainedModel:
    config = load_saved(checkpoint.folder / CONFIG)
    tokenizer = Tokenizer.load(checkpoint.folder)
    model = load_model(checkpoint, config.model, tokenizer, seed=config.seed, raw=raw)
    return TrainedModel(
        model=model.eval(),
        tokenizer=tokenizer,
        config=config,
        device=torch.device("cpu"),
        checkpoint=checkpoint,
        precision="fp32",
    )
