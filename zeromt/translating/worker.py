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
from trainer.inference.translation.words import Attention, pharaoh


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
    with_alignment: bool
    alignment_layer: int | None
    num_pictures: int
    """Number of lines, from the first, whose attention is drawn."""


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
    alignments: list[str]
    """One for each translation, if alignments are wanted."""
    attention: Attention | None
    """Attention of the best translation, if it is wanted."""


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
        mine = [i for i, translations in enumerate(by_line) if translations is not None]
        lines: list[Line | None] = [None] * len(by_line)
        attentions = self._attentions(chunk, {i: by_line[i] or [] for i in mine})
        for i in mine:
            alignments = [pharaoh(a, self._settings.alignment_layer) for a in attentions.get(i, [])]
            is_pictured = chunk.first + i < self._settings.num_pictures and i in attentions
            lines[i] = Line(
                translations=by_line[i] or [],
                alignments=alignments if self._settings.with_alignment else [],
                attention=attentions[i][0] if is_pictured else None,
            )
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

    def _attentions(self, chunk: Chunk, translations: dict[int, list[Translation]]) -> dict[int, list[Attention]]:
        """Attention of each translation of the lines, if alignments or pictures are wanted."""
        settings = self._settings
        wanted = [i for i in translations if settings.with_alignment or chunk.first + i < settings.num_pictures]
        # scored as NaN: longer than the model's positions
        pairs = [(i, t) for i in wanted for t in translations[i] if t.log_prob == t.log_prob]
        if not pairs:
            return {}
        given = None if chunk.targets is None else [chunk.targets[i] for i, _ in pairs]
        sources, targets = [chunk.sources[i] for i, _ in pairs], [t.ids for _, t in pairs]
        weights = self._translator.cross_attention(sources, targets, given)
        by_line: dict[int, list[Attention]] = {}
        for (i, _), attention in zip(pairs, weights, strict=True):
            by_line.setdefault(i, []).append(attention)
        return by_line
