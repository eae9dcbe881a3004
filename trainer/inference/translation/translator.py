"""Translates lines of text with a plain model, for evaluation and `zeromt translate`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from configs import SearchSection
from data_pipeline.tokenizer import EOS_ID, PAD_ID, Tokenizer
from model import Transformer
from model.kernels import packed_weights
from model.search import Ensemble, Hypothesis, score, search
from trainer.inference.translation.languages import LanguageTags, encode_source, encode_target
from trainer.inference.translation.sources import SourceCounts

OnLines = Callable[[int], None]
"""Called with the number of lines just finished."""


def do_nothing(number: int) -> None:
    """A callback that does nothing."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Translation:
    """A translated line, its log-probability, its score (this over the length penalty), and its pieces."""

    text: str
    log_prob: float
    score: float
    ids: list[int]


class Interrupted(Exception):  # noqa: N818 (a request, not an error)
    """A stop was requested in the middle of the work."""


class Translator:
    """Translates with one model or ensemble on one device. Batches depend only on the lines, not on the ranks."""

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        section: SearchSection,
        device: torch.device,
        *,
        tags: LanguageTags | None = None,
    ) -> None:
        self._model = model if isinstance(model, Ensemble) else Ensemble([model.eval()])
        self._tokenizer = tokenizer
        self._section = section
        self._device = device
        self._tags = tags
        self.counts = SourceCounts()
        """Counts over all sources so far."""
        self.on_lines: OnLines = do_nothing
        """Called for every finished batch."""

    def translate(self, lines: Sequence[str], *, n_best: int = 1) -> list[list[Translation]]:
        """The best translations of each line, in order; the translation of an empty line is empty.

        A line without any pieces counts as empty. A line longer than the model's positions is cut there and counted.
        """
        return self.translate_part(lines, rank=0, world_size=1, n_best=n_best)  # type: ignore[return-value]

    def translate_part(
        self,
        lines: Sequence[str],
        *,
        rank: int,
        world_size: int,
        n_best: int = 1,
        keys: Sequence[int] | None = None,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> list[list[Translation] | None]:
        """Like `translate`, but only every `world_size`-th batch, starting at `rank`; None for the other ranks' lines.

        Args:
            keys: seed each line's samples; the lines' numbers by default.

        Raises:
            Interrupted: `stop_requested`, which is called before every batch, returned true.
        """
        sources = self._encode(lines)
        results: list[list[Translation] | None] = [None] * len(lines)
        if rank == 0:
            empty = Translation(text="", log_prob=0.0, score=0.0, ids=[])
            results = [[empty] if len(source) == 1 else None for source in sources]
        forced = None if self._tags is None else [self._tags.target]
        rows_each = self._section.beam if self._section.sampler is None else n_best
        widths = {i: len(source) for i, source in enumerate(sources) if len(source) > 1}
        batches = cut_batches(widths, self._section.batch_tokens // rows_each)
        with packed_weights(self._model.models, self._device):
            for rows in batches[rank::world_size]:
                if stop_requested():
                    raise Interrupted
                by_row = search(
                    self._model,
                    self._pad([sources[i] for i in rows]),
                    self._section,
                    n_best=n_best,
                    prefixes=None if forced is None else [forced] * len(rows),
                    keys=rows if keys is None else [keys[i] for i in rows],
                )
                texts = iter(self._tokenizer.decode_target([h.ids for hypotheses in by_row for h in hypotheses]))
                for i, hypotheses in zip(rows, by_row, strict=True):
                    results[i] = [_translation(next(texts), h) for h in hypotheses]
                self.on_lines(len(rows))
        return results

    def score_part(
        self, lines: Sequence[str], targets: Sequence[str], *, rank: int, world_size: int
    ) -> list[Translation | None]:
        """Scores of given translations, only every `world_size`-th batch, starting at `rank`; None for the others.

        A source longer than the model's positions is cut there and counted; a translation longer than them scores NaN.
        """
        sources = self._encode(lines)
        ids = encode_target(self._tokenizer, targets, self._tags)
        results: list[Translation | None] = [None] * len(lines)
        widths = {i: max(len(source), len(ids[i]) + 1) for i, source in enumerate(sources)}
        for i, row in enumerate(ids):
            if len(row) >= self._model.max_positions:
                del widths[i]
                if rank == 0:
                    results[i] = Translation(text=targets[i], log_prob=math.nan, score=math.nan, ids=row)
        for rows in cut_batches(widths, self._section.batch_tokens)[rank::world_size]:
            hypotheses = score(
                self._model, self._pad([sources[i] for i in rows]), [ids[i] for i in rows], self._section
            )
            for i, hypothesis in zip(rows, hypotheses, strict=True):
                results[i] = _translation(targets[i], hypothesis)
            self.on_lines(len(rows))
        return results

    def _pad(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        """Rows of ids as one tensor on the device."""
        width = max(map(len, sources))
        rows = [[*s, *[PAD_ID] * (width - len(s))] for s in sources]
        return torch.tensor(rows, dtype=torch.long, device=self._device)

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        longest = self._model.max_positions - 1
        sources = encode_source(self._tokenizer, lines, self._tags)
        self.counts.note(self._tokenizer, lines, sources, longest)
        return [[*s[:longest], EOS_ID] for s in sources]


def _translation(text: str, hypothesis: Hypothesis) -> Translation:
    return Translation(text=text, log_prob=hypothesis.log_prob, score=hypothesis.score, ids=hypothesis.ids)


def cut_batches(lengths: Mapping[int, int], budget: int) -> list[list[int]]:
    """Numbered sequences in batches of similar length, of at most `budget` padded tokens (but at least one sequence).

    The longest come first, so that ranks that divide the batches finish at about the same time.
    """
    batches: list[list[int]] = []
    for i in sorted(lengths, key=lambda i: (-lengths[i], i)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
