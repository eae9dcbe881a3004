"""The runs that are compared: each with its folder, checkpoint and configuration."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import RunConfig, UserError, load_saved
from configs.process.files import is_file
from data_pipeline.tokenizer import Tokenizer
from trainer.checkpoint.format import Checkpoint
from trainer.inference.loading import find_checkpoint
from trainer.runs.layout import CONFIG, MANIFEST, run_of
from trainer.runs.parents import hash_of, noted_parent, parent_in


@dataclass(kw_only=True, slots=True, frozen=True)
class Subject:
    """One of the runs."""

    label: str
    """Its label, unique among the runs."""
    path: str
    """The path as the user gave it."""
    folder: Path | None
    """The run's folder; None for a checkpoint outside a run."""
    checkpoint: Checkpoint | None
    """The checkpoint that was named, or the newest; None if the run has none."""
    no_checkpoint: str | None
    """Why it has none."""
    config: RunConfig
    """The checkpoint's configuration if there is one, else the run's."""
    tokenizer: Tokenizer | None = None
    """The checkpoint's."""

    @property
    def step(self) -> int | None:
        """Step of the checkpoint."""
        return None if self.checkpoint is None else int(self.checkpoint.manifest["step"])

    @property
    def ranks(self) -> int | None:
        """Those that have saved the checkpoint."""
        return None if self.checkpoint is None else int(self.checkpoint.manifest.get("world_size", 1))

    @property
    def checkpoint_hash(self) -> str | None:
        """SHA-256 of the checkpoint's manifest, which holds the hashes of all its files."""
        return None if self.checkpoint is None else hash_of(self.checkpoint.folder)

    @property
    def parent(self) -> str | None:
        """The run and checkpoint that it began from."""
        if self.checkpoint is not None:
            parent = parent_in(self.checkpoint.manifest)
        else:
            parent = None if self.folder is None else noted_parent(self.folder)
        return None if parent is None else parent.describe()


def load_subjects(paths: Sequence[str]) -> list[Subject]:
    """Read runs and checkpoints.

    Raises:
        UserError: a path is neither, or a checkpoint that was named is broken.
    """
    return [_load(path, label) for path, label in zip(paths, _labels(paths), strict=True)]


def _load(path: str, label: str) -> Subject:
    place = Path(path)
    folder = _run_of(place)
    checkpoint, why = None, None
    try:
        checkpoint = find_checkpoint(place)
    except UserError as error:
        if folder != place or not is_file(place / CONFIG):
            raise
        why = str(error).removeprefix("RUN: ")
    if checkpoint is None:
        config = load_saved(place / CONFIG, any_version=True)
    else:
        config = load_saved(checkpoint.folder / CONFIG, any_version=True)
    return Subject(
        label=label,
        path=path,
        folder=folder,
        checkpoint=checkpoint,
        no_checkpoint=why,
        tokenizer=None if checkpoint is None else Tokenizer.load(checkpoint.folder),
        config=config,
    )


def _run_of(place: Path) -> Path | None:
    """The folder of the run that a path names, or lies in."""
    return run_of(place) if is_file(place / MANIFEST) else place


def _labels(paths: Sequence[str]) -> list[str]:
    """The shortest distinct names; a run given twice gets a number."""
    short = []
    for path in paths:
        place = Path(path)
        run = _run_of(place)
        is_run = run == place or run is None
        short.append(place.resolve().name if is_run or run is None else f"{run.name}@{place.resolve().name}")
    labels: list[str] = []
    for name, path in zip(short, paths, strict=True):
        label = name if short.count(name) == 1 else path
        count = labels.count(label) + sum(one.startswith(f"{label} (") for one in labels)
        labels.append(label if not count else f"{label} ({count + 1})")
    return labels
