"""Constraints on translations: minimum and maximum length, a forced prefix, no repeated n-grams."""

from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.kernels import upload
from model.search.ensemble import Ensemble
from model.transformer import Transformer

NEVER = -1e30
"""Log-probability of a forbidden token; finite, so that sums do not become NaN."""


def max_length(source_length: int, section: SearchSection, model: Transformer | Ensemble) -> int:
    """Maximum translation length in tokens for a source of `source_length` tokens, both with EOS; at least 1."""
    limit = int(source_length * section.max_length_ratio) + section.max_length_extra
    return max(1, min(limit, model.max_positions))


class Constraints:
    """The constraints on the sentences of a batch.

    A forced prefix takes precedence over the others, and raises the maximum length if it would not fit. If n-gram
    blocking forbids every other token, a translation may be shorter than the minimum length.

    Args:
        source_lengths: tokens of each source, EOS included.
        prefixes: forced target ids at the start of each translation, one list for each source; None for no prefixes.

    Raises:
        ValueError: a prefix leaves no space for EOS or contains a special id, or the number of prefixes is wrong.
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
            raise ValueError(f"prefixes: {len(self._prefixes)} for {len(source_lengths)} sources; give one for each")
        for prefix in self._prefixes:
            if len(prefix) >= model.max_positions:
                raise ValueError(f"prefix: {len(prefix)} tokens; must be fewer than {model.max_positions}")
            if {model.special.pad, model.special.bos, model.special.eos} & set(prefix):
                raise ValueError(f"prefix: {prefix} contains PAD, BOS or EOS; remove them")
        self.limits = [
            max(max_length(n, section, model), len(p) + 1) for n, p in zip(source_lengths, self._prefixes, strict=True)
        ]
        """Maximum length of each translation in tokens, EOS included."""
        self.need_history = self._ngram > 0
        """Whether `apply` looks at the tokens so far."""
        self._shortest = [
            min(int(n * section.min_length_ratio) + section.min_length_extra, limit)
            for n, limit in zip(source_lengths, self.limits, strict=True)
        ]

    def apply(self, log_p_BkV: Tensor, step: int, sentences: Sequence[int], history_BkT: Tensor) -> None:
        """Set the log-probability of forbidden tokens to NEVER, in place. PAD and BOS are always forbidden.

        Args:
            log_p_BkV: log-probabilities of the next token of k hypotheses of each sentence.
            step: number of that token, counted from 1.
            sentences: number of each row's sentence.
            history_BkT: tokens of each hypothesis so far; of no matter unless `need_history`.
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
        """(row, token) for rows with only one allowed token: the next of the prefix, or EOS at the maximum length."""
        forced = []
        for row, s in enumerate(sentences):
            if step <= len(self._prefixes[s]):
                forced.append((row, self._prefixes[s][step - 1]))
            elif step >= self.limits[s]:
                forced.append((row, self._special.eos))
        return forced

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
    """Set tokens that would repeat an n-gram of the history to NEVER, in place."""
    length = history_BkT.shape[-1]
    if length < n:
        return
    grams_Bkwn = history_BkT.unfold(-1, n, 1)
    begin_Bk1n = history_BkT[..., None, length - n + 1 :]
    is_repeat_Bkw = (grams_Bkwn[..., :-1] == begin_Bk1n).all(-1)
    blocked_Bkw = torch.full(is_repeat_Bkw.shape, torch.inf, device=log_p_BkV.device).masked_fill(is_repeat_Bkw, NEVER)
    log_p_BkV.scatter_reduce_(-1, grams_Bkwn[..., -1], blocked_Bkw, "amin")
