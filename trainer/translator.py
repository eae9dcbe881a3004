"""Lines of text to lines of text with a plain model. Shared by evaluation and `zeromt translate`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from configs import SearchSection
from data_pipeline.tokenizer import EOS_ID, PAD_ID, Tokenizer
from model import Transformer, search


@dataclass(kw_only=True, slots=True, frozen=True)
class Translation:
    """A translated line and its length-normalised log-probability."""

    text: str
    score: float


class Interrupted(Exception):  # noqa: N818 (a request, not an error)
    """Someone asked to stop in the middle of it."""


class Translator:
    """Translates with one model on one device. Batches depend on the lines alone, not on who translates them."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, section: SearchSection, device: torch.device) -> None:
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._section = section
        self._device = device
        self.num_truncated = 0
        """Sources that were longer than the model's positions and lost their end."""

    def translate(self, lines: Sequence[str], *, n_best: int = 1) -> list[list[Translation]]:
        """The best translations of each line, in order; an empty line has the empty translation.

        A line that the tokenizer turns into nothing is empty. One that is longer than the model's positions is cut
        there and counted.
        """
        return self.translate_share(lines, rank=0, world_size=1, n_best=n_best)  # type: ignore[return-value]

    def translate_share(
        self,
        lines: Sequence[str],
        *,
        rank: int,
        world_size: int,
        n_best: int = 1,
        stop_requested: Callable[[], bool] = lambda: False,
    ) -> list[list[Translation] | None]:
        """As `translate`, but every `world_size`-th batch only, from `rank` on; None for the lines of the others.

        Raises:
            Interrupted: `stop_requested`, which is asked before every batch, said yes.
        """
        sources = self._encode(lines)
        results: list[list[Translation] | None] = [None] * len(lines)
        if rank == 0:
            for i, source in enumerate(sources):
                if len(source) == 1:
                    results[i] = [Translation(text="", score=0.0)]
        filled = [i for i, source in enumerate(sources) if len(source) > 1]
        batches = cut_batches([len(sources[i]) for i in filled], self._section.batch_tokens // self._section.beam)
        for batch in batches[rank::world_size]:
            if stop_requested():
                raise Interrupted
            rows = [filled[i] for i in batch]
            found = search(self._model, self._pad([sources[i] for i in rows]), self._section, n_best=n_best)
            flat = self._tokenizer.decode_target([h.ids for hypotheses in found for h in hypotheses])
            texts = iter(flat)
            for i, hypotheses in zip(rows, found, strict=True):
                results[i] = [Translation(text=next(texts), score=h.score) for h in hypotheses]
        return results

    def _encode(self, lines: Sequence[str]) -> list[list[int]]:
        longest = self._model.max_positions - 1
        sources = self._tokenizer.encode_source(list(lines))
        self.num_truncated += sum(len(s) > longest for s in sources)
        return [[*s[:longest], EOS_ID] for s in sources]

    def _pad(self, sources: Sequence[Sequence[int]]) -> torch.Tensor:
        width = max(map(len, sources))
        rows = [[*s, *[PAD_ID] * (width - len(s))] for s in sources]
        return torch.tensor(rows, dtype=torch.long, device=self._device)


def cut_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length, at most `budget` padded tokens each (one sequence at least).

    The longest come first, so that ranks which share the batches end at about the same time.
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
