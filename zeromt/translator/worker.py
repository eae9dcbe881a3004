"""What is to be translated and how, and one process's share: its part of the batches of each chunk of lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from configs import SearchSection
from trainer.checkpoint.format import read_checkpoint
from trainer.inference.loading import load_ensemble
from trainer.inference.translation.languages import LanguageTags
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import OnLines, Translation, Translator, do_nothing
from zeromt.translator.mbr import Utility


@dataclass(kw_only=True, slots=True, frozen=True)
class Options:
    """What translates and how, as the options of `zeromt translate` say. Picklable."""

    run: str
    """A run's folder, or a checkpoint."""
    ensemble: Sequence[str] = ()
    """Further runs, whose probabilities are averaged with those of `run`."""
    raw_weights: bool = False
    """Use the weights themselves, even if there are moving averages."""
    precision: str | None = None
    """See `trainer.ranks.precision.translating_precision`."""
    quantization: str | None = None
    """Translate by the run's export to CTranslate2 with weights in this format."""
    source_language: str | None = None
    target_language: str | None = None
    """Of models that have tags on both sides; the run's unless given."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """Fields that replace those of the run's search section."""
    candidates: int = 1
    """Translations of a line."""
    mbr: Utility | None = None
    """Orders them by minimum Bayes risk."""
    paragraphs: bool = False
    """Translate each sentence of a line by itself."""
    processes: int | None = 1
    """None for one on each GPU or core."""


class TranslationSettings(NamedTuple):
    """How lines are translated."""

    section: SearchSection
    number: int = 1
    """Translations of a line."""
    tags: LanguageTags | None = None
    """With which sources and translations begin."""
    modifies: bool = True
    """Lines are as the run's modifiers want them, and translations as if those were not there."""


class Chunk(NamedTuple):
    """Lines that are translated together."""

    sources: list[str]
    first: int = 0
    """Number of the first line, from 0."""
    targets: list[str] | None = None
    """Translations to score, instead of translating."""


class Task(NamedTuple):
    """The texts of a chunk as the model gets them."""

    sources: list[str]
    settings: TranslationSettings
    targets: list[str] | None = None
    keys: list[int] | None = None
    """Seeds of each text's samples; by default their numbers."""


class Answer(NamedTuple):
    """One process's part of a task's translations: None for the texts of the other processes."""

    lines: list[list[Translation] | None]
    counts: SourceCounts
    """Counts over the sources of the whole task."""


Work = Callable[[Iterable[Task | None], OnLines], Iterator[Answer]]
"""From tasks, with None where the input pauses, to the answers in order."""


class Worker:
    """Loads the models, and does this process's part of each task.

    Args:
        folders: verified checkpoints; several are an ensemble.
        options: for the weights and their precision.
    """

    def __init__(self, folders: Sequence[Path], options: Options, *, rank: int = 0, world_size: int = 1) -> None:
        checkpoints = [read_checkpoint(folder) for folder in folders]
        self._model, self.trained = load_ensemble(checkpoints, raw=options.raw_weights, precision=options.precision)
        self._share: dict[str, Any] = {"rank": rank, "world_size": world_size}

    def do(self, task: Task, on_lines: OnLines = do_nothing) -> Answer:
        """This process's part of a task; `on_lines` is called for every finished batch."""
        settings, trained = task.settings, self.trained
        translator = Translator(self._model, trained.tokenizer, settings.section, trained.device, tags=settings.tags)
        translator.on_lines = on_lines
        if task.targets is None:
            lines = translator.translate_part(task.sources, **self._share, n_best=settings.number, keys=task.keys)
        else:
            scored = translator.score_part(task.sources, task.targets, **self._share)
            lines = [None if one is None else [one] for one in scored]
        return Answer(lines=lines, counts=translator.counts)
