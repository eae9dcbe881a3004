"""What may follow a hypothesis: shortest and longest translations, a forced prefix, no n-gram twice."""

from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.kernels import upload
from model.search.ensemble import Ensemble
from model.transformer import Transformer

NEVER = -1e30
"""A log-probability that no hypothesis survives; finite, so that sums of it stay numbers."""


def max_length(source_length: int, section: SearchSection, model: Transformer | Ensemble) -> int:
    """Longest translation in tokens, EOS counted, for a source of so many tokens; at least EOS."""
    limit = int(source_length * section.max_length_ratio) + section.max_length_extra
    return max(1, min(limit, model.max_positions))


class Constraints:
    """The constraints on the sentences of a batch.

    A forced prefix outranks the others, and lengthens the limit where it would not fit. Where blocked n-grams leave
    nothing to go on with, a translation may be shorter than the shortest that is asked for.

    Args:
        source_lengths: tokens of each source, EOS counted.
        prefixes: target ids that each translation begins with, one list for each source; None where there are none.

    Raises:
        ValueError: a prefix leaves no room for EOS, holds a special id, or one is missing.
    """

    def __init__(
        self,
        source_lengths: Sequence[int],
        section: SearchSection,
        model: Ensemble,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self._special = model.special
        self._ngram = section.no_repeat_ngram
        self._prefixes = [list(p) for p in prefixes] if prefixes is not None else [[] for _ in source_lengths]
        if len(self._prefixes) != len(source_lengths):
            raise ValueError(f"prefixes: {len(self._prefixes)} for {len(source_lengths)} sources; allowed is one each")
        for prefix in self._prefixes:
            if len(prefix) >= model.max_positions:
                raise ValueError(f"prefix: {len(prefix)} tokens; allowed is less than {model.max_positions}")
            if {model.special.pad, model.special.bos, model.special.eos} & set(prefix):
                raise ValueError(f"prefix: {prefix} holds PAD, BOS or EOS; allowed are other ids")
        self.limits = [
            max(max_length(n, section, model), len(p) + 1) for n, p in zip(source_lengths, self._prefixes, strict=True)
        ]
        """Longest translation of each sentence in tokens, EOS counted."""
        self._shortest = [
            min(int(n * section.min_length_ratio) + section.min_length_extra, limit)
            for n, limit in zip(source_lengths, self.limits, strict=True)
        ]

    def apply(self, log_p_BkV: Tensor, step: int, sentences: Sequence[int], history_BkT: Tensor) -> None:
        """Set what may not follow to NEVER, in place; PAD and BOS are never written.

        Args:
            log_p_BkV: log-probabilities of the next token of k hypotheses of each sentence.
            step: number of that token, from 1.
            sentences: numbers of the sentences, by row.
            history_BkT: what each hypothesis holds so far.
        """
        only = self._only(step, sentences)
        if only:
            rows, tokens = upload(list(zip(*only, strict=True)), log_p_BkV.device)
            kept_Rk = log_p_BkV[rows, :, tokens]
        log_p_BkV[..., self._special.pad] = NEVER
        log_p_BkV[..., self._special.bos] = NEVER
        self._apply_length_and_ngrams(log_p_BkV, step, sentences, history_BkT)
        if only:
            log_p_BkV[rows] = NEVER
            log_p_BkV[rows, :, tokens] = kept_Rk

    def _only(self, step: int, sentences: Sequence[int]) -> list[tuple[int, int]]:
        """(row, token) where one token alone may follow: that of the prefix, or EOS at the limit."""
        found = []
        for row, s in enumerate(sentences):
            if step <= len(self._prefixes[s]):
                found.append((row, self._prefixes[s][step - 1]))
            elif step >= self.limits[s]:
                found.append((row, self._special.eos))
        return found

    def _apply_length_and_ngrams(
        self, log_p_BkV: Tensor, step: int, sentences: Sequence[int], history_BkT: Tensor
    ) -> None:
        eos = self._special.eos
        is_short = [step < self._shortest[s] for s in sentences]
        ends_Bk = log_p_BkV[..., eos].clone() if any(is_short) else None
        if ends_Bk is not None:
            is_short_B1 = upload(is_short, log_p_BkV.device, torch.bool)[:, None]
            log_p_BkV[..., eos] = ends_Bk.masked_fill(is_short_B1, NEVER)
        if self._ngram:
            block_repeats(log_p_BkV, history_BkT, self._ngram)
            if ends_Bk is not None:
                is_dead_Bk = log_p_BkV.amax(-1) <= NEVER / 2
                log_p_BkV[..., eos] = torch.where(is_dead_Bk, ends_Bk, log_p_BkV[..., eos])


def block_repeats(log_p_BkV: Tensor, history_BkT: Tensor, n: int) -> None:
    """Set tokens that would complete an n-gram which the history already holds to NEVER, in place."""
    length = history_BkT.shape[-1]
    if length < n:
        return
    grams_Bkwn = history_BkT.unfold(-1, n, 1)
    begin_Bk1n = history_BkT[..., None, length - n + 1 :]
    is_repeat_Bkw = (grams_Bkwn[..., :-1] == begin_Bk1n).all(-1)
    blocked_Bkw = torch.full(is_repeat_Bkw.shape, torch.inf, device=log_p_BkV.device).masked_fill(is_repeat_Bkw, NEVER)
    log_p_BkV.scatter_reduce_(-1, grams_Bkwn[..., -1], blocked_Bkw, "amin")
