"""A trained model from a run's folder, for translation and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from configs import RunConfig, UserError, load_run
from data_pipeline.tokenizer import Tokenizer
from model import Ensemble, Transformer
from trainer.checkpoint.format import CONFIG, Checkpoint, CheckpointError, list_steps, read_checkpoint, verify
from trainer.model_files import build_model, load_weights, place
from trainer.precision import DTYPES, resolve_precision


@dataclass(kw_only=True, slots=True, frozen=True)
class TrainedModel:
    """A model ready to translate, and where it came from."""

    model: Transformer
    tokenizer: Tokenizer
    config: RunConfig
    device: torch.device
    checkpoint: Checkpoint


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at a path, or the newest whole one of a run's folder; every byte verified.

    Raises:
        UserError: there is none, or the one that was named is broken.
    """
    if not path.is_dir():
        raise UserError(f"RUN: no such folder: {str(path)!r}; allowed is a run's folder or one checkpoint in it")
    if (path / "checkpoints").is_dir():
        refused = []
        for folder in list_steps(path / "checkpoints"):
            try:
                return _whole(folder)
            except CheckpointError as error:
                refused.append(str(error))
        problem = f": {refused[0]}" if refused else ""
        raise UserError(f"RUN: {str(path)!r} has no complete checkpoint{problem}")
    return _whole(path)


def load_trained(path: Path, *, raw: bool = False) -> TrainedModel:
    """Load the model of a run or checkpoint in the precision it was trained with, where the device has it.

    Args:
        path: a run's folder, or a checkpoint.
        raw: see `load_weights`.

    Raises:
        UserError: there is no whole checkpoint.
    """
    return load_checkpoint(find_checkpoint(path), raw=raw)


def load_checkpoint(checkpoint: Checkpoint, *, raw: bool) -> TrainedModel:
    """As `load_trained`, of a checkpoint that was verified."""
    config = load_run(str(checkpoint.folder / CONFIG))
    tokenizer = Tokenizer.load(checkpoint.folder)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_model(config.model, tokenizer, seed=config.seed)
    load_weights(checkpoint, model, raw=raw)
    dtype = DTYPES[resolve_precision(config.engine.precision, device)]
    return TrainedModel(
        model=place(model, device, dtype).eval(),
        tokenizer=tokenizer,
        config=config,
        device=device,
        checkpoint=checkpoint,
    )


def load_ensemble(checkpoints: Sequence[Checkpoint], *, raw: bool) -> tuple[Ensemble, TrainedModel]:
    """Models that decode as one, and the first of them; for `raw` see `load_weights`.

    Raises:
        UserError: their vocabularies differ.
    """
    trained = [load_checkpoint(checkpoint, raw=raw) for checkpoint in checkpoints]
    try:
        return Ensemble([t.model for t in trained]), trained[0]
    except ValueError as error:
        raise UserError(f"--ensemble: {error}") from error


def check_same_tokenizer(folders: Sequence[Path]) -> None:
    """Refuse checkpoints that spell text in different ways.

    Raises:
        UserError: their tokenizers differ.
    """
    first, *others = [Tokenizer.load(folder).fingerprint for folder in folders]
    for folder, fingerprint in zip(folders[1:], others, strict=True):
        if fingerprint != first:
            raise UserError(
                f"--ensemble: {str(folder)!r} has tokenizer {fingerprint[:12]}, {str(folders[0])!r} has {first[:12]}; "
                "allowed are runs with one tokenizer"
            )


def _whole(folder: Path) -> Checkpoint:
    checkpoint = read_checkpoint(folder)
    if problems := verify(checkpoint):
        raise CheckpointError(problems[0])
    return checkpoint
