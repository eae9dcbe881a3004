"""One process's work of a translation: its part of the batches of each chunk of lines."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import SearchSection
from trainer.checkpoint.format import read_checkpoint
from trainer.inference.loading import load_ensemble
from trainer.inference.translation.languages import LanguageTags
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import OnLines, Translation, Translator, nobody


@dataclass(kw_only=True, slots=True, frozen=True)
class Settings:
    """What to do with each line. Picklable."""

    checkpoints: Sequence[str]
    """Folders of verified checkpoints; several are an ensemble."""
    raw_weights: bool
    """Use the weights themselves, even if there are moving averages."""
    precision: str | None
    """As the user asked; see `trainer.ranks.precision.translating_precision`."""
    tags: LanguageTags | None
    section: SearchSection
    n_best: int


@dataclass(kw_only=True, slots=True, frozen=True)
class Chunk:
    """Lines that are translated together."""

    first: int
    """Number of the first line, from 0."""
    sources: list[str]
    targets: list[str] | None = None
    """Translations to score, instead of translating."""
    prefixes: list[str] | None = None
    keys: list[int] | None = None
    """Seeds of each line's samples; by default their numbers."""


def of_text(lines: Sequence[str], *, first: int) -> Chunk:
    """A chunk of those of some lines that have text; `first` is the number of the first line, from 0."""
    rows = [row for row, line in enumerate(lines) if line.strip()]
    return Chunk(first=first, sources=[lines[row] for row in rows], keys=[first + row for row in rows])


@dataclass(kw_only=True, slots=True, frozen=True)
class Line:
    """The result of one line."""

    translations: list[Translation]


@dataclass(kw_only=True, slots=True, frozen=True)
class Answer:
    """One process's part of a chunk's results: None for the lines of the other processes."""

    lines: list[Line | None]
    counts: SourceCounts
    """Counts over the sources of the whole chunk."""


Work = Callable[[Iterable[Chunk | None], OnLines], Iterator[Answer]]
"""From chunks, with None where the input pauses, to the answers in order."""


class Worker:
    """Loads the models, and does this process's part of each chunk."""

    def __init__(self, settings: Settings, *, rank: int = 0, world_size: int = 1) -> None:
        self._settings = settings
        self._rank, self._world_size = rank, world_size
        checkpoints = [read_checkpoint(Path(folder)) for folder in settings.checkpoints]
        ensemble, trained = load_ensemble(checkpoints, raw=settings.raw_weights, precision=settings.precision)
        self._translator = Translator(ensemble, trained.tokenizer, settings.section, trained.device, tags=settings.tags)

    def do(self, chunk: Chunk, on_lines: OnLines = nobody) -> Answer:
        """This process's part of a chunk; `on_lines` is called for every finished batch."""
        self._translator.counts = counts = SourceCounts()
        self._translator.on_lines = on_lines
        by_line = self._translations(chunk)
        lines = [None if translations is None else Line(translations=translations) for translations in by_line]
        return Answer(lines=lines, counts=counts)

    def _translations(self, chunk: Chunk) -> list[list[Translation] | None]:
        if chunk.targets is None:
            return self._translator.translate_part(
                chunk.sources,
                rank=self._rank,
                world_size=self._world_size,
                n_best=self._settings.n_best,
                prefixes=chunk.prefixes,
                first=chunk.first,
                keys=chunk.keys,
            )
        ranks = {"rank": self._rank, "world_size": self._world_size}
        scored = self._translator.score_part(chunk.sources, chunk.targets, **ranks)
        return [None if one is None else [one] for one in scored]
