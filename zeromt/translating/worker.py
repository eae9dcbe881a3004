"""What is to be translated and how, and one process's work of it: its part of the batches of each chunk of lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configs import SearchSection
from trainer.checkpoint.format import read_checkpoint
from trainer.inference.loading import load_ensemble
from trainer.inference.translation.languages import LanguageTags
from trainer.inference.translation.sources import SourceCounts
from trainer.inference.translation.translator import OnLines, Translation, Translator, nobody
from zeromt.translating.mbr import Utility


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
    tags: LanguageTags | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class Answer:
    """One process's part of a chunk's translations: None for the lines of the other processes."""

    lines: list[list[Translation] | None]
    counts: SourceCounts
    """Counts over the sources of the whole chunk."""


Work = Callable[[Iterable[Chunk | None], OnLines], Iterator[Answer]]
"""From chunks, with None where the input pauses, to the answers in order."""


class Worker:
    """Loads the models, and does this process's part of each chunk.

    Args:
        folders: verified checkpoints; several are an ensemble.
        options: for all but their languages and their search.
        section: of the search.
    """

    def __init__(
        self, folders: Sequence[Path], options: Options, section: SearchSection, *, rank: int = 0, world_size: int = 1
    ) -> None:
        checkpoints = [read_checkpoint(folder) for folder in folders]
        self._model, trained = load_ensemble(checkpoints, raw=options.raw_weights, precision=options.precision)
        self._tokenizer, self._device = trained.tokenizer, trained.device
        self._section, self._number = section, options.candidates
        self._share: dict[str, Any] = {"rank": rank, "world_size": world_size}

    def do(self, chunk: Chunk, on_lines: OnLines = nobody) -> Answer:
        """This process's part of a chunk; `on_lines` is called for every finished batch."""
        translator = Translator(self._model, self._tokenizer, self._section, self._device, tags=chunk.tags)
        translator.on_lines = on_lines
        if chunk.targets is None:
            lines = translator.translate_part(
                chunk.sources,
                **self._share,
                n_best=self._number,
                prefixes=chunk.prefixes,
                first=chunk.first,
                keys=chunk.keys,
            )
        else:
            scored = translator.score_part(chunk.sources, chunk.targets, **self._share)
            lines = [None if one is None else [one] for one in scored]
        return Answer(lines=lines, counts=translator.counts)
