"""A trained model from a run's folder, for translation and evaluation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from configs import RunConfig, UserError, load_saved
from configs.process.files import exists, is_dir, is_file, naming
from data_pipeline.tokenizer import Tokenizer
from model import Transformer
from model.search import Ensemble
from trainer.checkpoint.format import Checkpoint, CheckpointError, read_whole
from trainer.checkpoint.model_files import load_model, place
from trainer.ranks.device import choose_device, warn_of_unusable_gpus
from trainer.ranks.precision import DTYPES, Precision, translating_precision
from trainer.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    LAUNCH_LOCK,
    LEDGER_FILE,
    MANIFEST,
    METRICS_FILE,
    RUN_LOCK,
    STATUS_FILE,
    list_steps,
)

TRIES = 5
"""How often a checkpoint is chosen again because the chosen one was deleted meanwhile."""
OF_A_RUN = (CONFIG, STATUS_FILE, METRICS_FILE, LEDGER_FILE, RUN_LOCK, LAUNCH_LOCK)
"""Files by which a run's folder is recognised before its first checkpoint."""

T = TypeVar("T")


@dataclass(kw_only=True, slots=True, frozen=True)
class TrainedModel:
    """A model ready to translate, and where it came from."""

    model: Transformer
    tokenizer: Tokenizer
    config: RunConfig
    device: torch.device
    checkpoint: Checkpoint
    precision: Precision


def find_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint at a path, or the newest whole one of a run; every byte is verified.

    Raises:
        UserError: there is none, or the named one is broken.
    """
    with naming("RUN"):
        return _find(path)


def _find(path: Path) -> Checkpoint:
    if not is_dir(path):
        raise UserError(f"RUN: {str(path)!r}: no such folder; give a run or one checkpoint in it")
    if is_file(path / MANIFEST):
        return read_whole(path)
    refused: list[str] = []
    for folder in list_steps(path / CHECKPOINTS):
        try:
            return read_whole(folder)
        except (CheckpointError, FileNotFoundError) as error:
            if not is_dir(folder):  # a run that is training has deleted it, and saved a newer one before
                return _find(path)
            refused.append(str(error))
    if refused:
        raise UserError(f"RUN: {str(path)!r} has no complete checkpoint: {refused[0]}")
    if not any(exists(path / name) for name in (CHECKPOINTS, *OF_A_RUN)):
        advice = f"; give the run, {str(path.parent)!r}" if path.name == CHECKPOINTS else ""
        raise UserError(f"RUN: {str(path)!r} is neither a run's folder nor a checkpoint (it has no {MANIFEST}){advice}")
    raise no_checkpoint(path)


def no_checkpoint(run: Path) -> UserError:
    """The message for a run without a checkpoint."""
    return UserError(f"RUN: {str(run)!r} has no checkpoint yet; it can be used after its first save")


def with_checkpoints(names: Sequence[str], use: Callable[[list[Checkpoint]], T]) -> T:
    """Apply `use` to the newest checkpoints of some runs; see `with_chosen_checkpoints`.

    Args:
        names: folders of runs, or checkpoints.
        use: loads the checkpoints.

    Raises:
        UserError: see `find_checkpoint`.
    """
    return with_chosen_checkpoints(lambda: [find_checkpoint(Path(name)) for name in names], use)


def with_chosen_checkpoints(choose: Callable[[], list[Checkpoint]], use: Callable[[list[Checkpoint]], T]) -> T:
    """Apply `use` to chosen checkpoints; if one is deleted meanwhile, choose again and retry.

    A run that is training deletes old checkpoints after saving new ones.
    """
    for left in reversed(range(TRIES)):
        checkpoints = choose()
        try:
            return use(checkpoints)
        except Exception:  # of any class: a worker's, or a library's that misses a file
            if not left or all(is_dir(checkpoint.folder) for checkpoint in checkpoints):
                raise
    raise AssertionError("the last try returns or raises")


def places_of(runs: Sequence[str]) -> dict[str, str | None]:
    """The paths that commands read of runs and checkpoints, where nothing may be written: see `check_apart`.

    Other files, such as translations, may be written to a run's folder.
    """
    places: dict[str, str | None] = {}
    for number, name in enumerate(runs):
        what = "RUN" if number == 0 else f"--ensemble {name}"
        folder = Path(name)
        places[what] = str(folder / CHECKPOINTS if is_dir(folder / CHECKPOINTS) else folder)
        places |= {f"{what} ({file})": str(folder / file) for file in OF_A_RUN if is_file(folder / file)}
    return places


def load_trained(path: Path, *, raw: bool = False, precision: str | None = None) -> TrainedModel:
    """Load the model of a run or checkpoint.

    Args:
        path: a run's folder, or a checkpoint.
        raw: see `load_weights`.
        precision: see `translating_precision`.

    Raises:
        UserError: there is no whole checkpoint, or the device has no such precision.
    """
    return with_checkpoints(
        [str(path)], lambda checkpoints: load_checkpoint(checkpoints[0], raw=raw, precision=precision)
    )


def load_checkpoint(checkpoint: Checkpoint, *, raw: bool, precision: str | None) -> TrainedModel:
    """Like `load_trained`, for a verified checkpoint."""
    config = load_saved(checkpoint.folder / CONFIG)
    tokenizer = Tokenizer.load(checkpoint.folder)
    device = choose_device()
    warn_of_unusable_gpus()
    chosen = translating_precision(precision, config.engine.precision, device)
    model = load_model(checkpoint, config.model, tokenizer, seed=config.seed, raw=raw)
    return TrainedModel(
        model=place(model, device, DTYPES[chosen]).eval(),
        tokenizer=tokenizer,
        config=config,
        device=device,
        checkpoint=checkpoint,
        precision=chosen,
    )


def load_ensemble(
    checkpoints: Sequence[Checkpoint], *, raw: bool, precision: str | None
) -> tuple[Ensemble, TrainedModel]:
    """An ensemble, and its first model; for the arguments see `load_trained`.

    Raises:
        UserError: their vocabularies differ, or the device has no such precision.
    """
    trained = [load_checkpoint(checkpoint, raw=raw, precision=precision) for checkpoint in checkpoints]
    try:
        return Ensemble([t.model for t in trained]), trained[0]
    except ValueError as error:
        raise UserError(f"--ensemble: {error}") from error


def check_same_tokenizer(folders: Sequence[Path]) -> None:
    """Refuse checkpoints with different tokenizers.

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
