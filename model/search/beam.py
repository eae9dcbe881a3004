"""Batched beam search. A sentence leaves the batch when it is done: see `_Sentence._is_done`."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.kernels import steps_between_syncs, upload
from model.search.constraints import NEVER, Constraints
from model.search.ensemble import Ensemble
from model.search.scoring import Hypothesis, length_penalty

GROUP = 64
"""Number of neighbouring tokens whose maximum is computed first."""


_Path = tuple["_Path", int] | None
"""A hypothesis as a linked list: the hypothesis it extends, and its last token. None is the empty hypothesis."""


class _Sentence:
    """The host's record of a sentence: its open hypotheses and its best finished ones, at most `capacity`."""

    def __init__(self, capacity: int, limit: int, section: SearchSection) -> None:
        self._capacity = capacity
        self._limit = limit
        self._section = section
        self._largest_divisor = self._divisor(limit)
        self._remaining = max(capacity, section.patience * section.beam) if section.patience else math.inf
        self._open: list[_Path] = [None]
        self.best: list[Hypothesis] = []

    def process(self, step: int, numbers: Sequence[float]) -> bool:
        """Process the results of a step; returns whether the sentence is done, so that later steps are ignored.

        Args:
            step: counted from 1.
            numbers: a row of `_results`.
        """
        k = len(numbers) // 4
        for total, origin in zip(numbers[:k], numbers[k : 2 * k], strict=True):
            if total > NEVER / 2:
                self._add(self._ids(self._open[int(origin)]), total)
        origins, tokens = numbers[2 * k : 3 * k], numbers[3 * k : 4 * k]
        self._open = [(self._open[int(o)], int(token)) for o, token in zip(origins, tokens, strict=True)]
        return step >= self._limit or self._is_done(numbers[-1])

    def _ids(self, path: _Path) -> list[int]:
        ids = []
        while path is not None:
            path, token = path
            ids.append(token)
        return ids[::-1]

    def _add(self, ids: list[int], total: float) -> None:
        """Add a finished hypothesis if it is among the best."""
        self.best.append(Hypothesis(ids=ids, log_prob=total, score=total / self._divisor(len(ids) + 1)))
        self.best.sort(key=lambda h: -h.score)
        del self.best[self._capacity :]
        self._remaining -= 1

    def _is_done(self, best_open_sum: float) -> bool:
        """Whether patience x beam hypotheses are finished, or no open hypothesis can still be among the best.

        An open hypothesis can no longer be if its sum, divided by the length penalty at the length limit, is too low:
        sums only decrease, and no penalty is larger.
        """
        is_full = len(self.best) == self._capacity
        return self._remaining <= 0 or (is_full and best_open_sum / self._largest_divisor <= self.best[-1].score)

    def _divisor(self, length: int) -> float:
        return length_penalty(length, self._section.length_penalty, self._section.length_penalty_kind)


def beam_search(
    model: Ensemble, source_BS: Tensor, constraints: Constraints, section: SearchSection, n_best: int
) -> list[list[Hypothesis]]:
    """Search with the `beam` best open hypotheses of each sentence, until it is done (see `_Sentence`).

    Shapes: k open hypotheses of a sentence, 1 in the first step and up to `beam` later; c candidate extensions.
    """
    device, eos, beam, limits = source_BS.device, model.special.eos, section.beam, constraints.limits
    all_sentences = [_Sentence(n_best, limit, section) for limit in limits]
    sentences = list(range(len(limits)))  # still in the batch, by row
    states = model.start(source_BS)
    history_BkT = source_BS.new_empty((len(limits), 1, 0))
    sums_Bk = torch.zeros((len(limits), 1), device=device)
    last_N = source_BS.new_full((len(limits),), model.special.bos)
    step, steps, unread = 0, steps_between_syncs(device), []
    while sentences:
        step += 1
        num_open = sums_Bk.shape[1]
        log_p_BkV = model.step(last_N, states).view(*sums_Bk.shape, -1)
        constraints.apply(log_p_BkV, step, sentences, history_BkT)
        # each hypothesis has one extension with EOS, so 2 x beam candidates contain at least `beam` others
        top_Bc, origin_Bc, token_Bc = best_candidates(log_p_BkV, sums_Bk, 2 * beam)
        is_end_Bc = token_Bc == eos
        sums_Bk, slot_Bk = top_Bc.masked_fill(is_end_Bc, 2 * NEVER).topk(min(beam, top_Bc.shape[1]), dim=1)
        # an EOS that ranks below `beam` candidates does not count
        ends_Bk = top_Bc.masked_fill(~is_end_Bc, 2 * NEVER)[:, :beam]
        origin_Bk, token_Bk = origin_Bc.gather(1, slot_Bk), token_Bc.gather(1, slot_Bk)
        unread.append(_results(ends_Bk, origin_Bc[:, :beam], origin_Bk, token_Bk, sums_Bk))
        staying = list(range(len(sentences)))
        if step % steps == 0 or step >= max(limits[s] for s in sentences):
            staying, unread = _read_steps(unread, [all_sentences[s] for s in sentences], step), []
        if not staying:
            break
        if constraints.need_history:
            history_BkT = history_BkT.gather(1, origin_Bk[..., None].expand(-1, -1, step - 1))
            history_BkT = torch.cat([history_BkT, token_Bk[..., None]], dim=2)
        rows_Bk = torch.arange(len(sentences), device=device)[:, None] * num_open + origin_Bk
        keep = None  # all rows
        if len(staying) < len(sentences):
            keep = upload(staying, device)
            rows_Bk, token_Bk, sums_Bk, history_BkT = (x[keep] for x in (rows_Bk, token_Bk, sums_Bk, history_BkT))
            sentences = [sentences[row] for row in staying]
        for state in states:
            state.select(rows_Bk.flatten(), keep)
        last_N = token_Bk.flatten()
    return [s.best or [Hypothesis(ids=[], log_prob=math.nan, score=math.nan)] for s in all_sentences]


def _results(ends_Bk: Tensor, end_origin_Bk: Tensor, origin_Bk: Tensor, token_Bk: Tensor, sums_Bk: Tensor) -> Tensor:
    """The results of a step for the host, (B, 4 k + 1) in fp32, which is exact for integers up to 16 million.

    Args:
        ends_Bk: sums of the hypotheses that ended, NEVER for others.
        end_origin_Bk: the hypotheses that they extend.
        origin_Bk, token_Bk: for the open hypotheses, the hypothesis that each extends, and its last token.
        sums_Bk: sums of the open hypotheses, best first.
    """
    return torch.cat([ends_Bk, end_origin_Bk, origin_Bk, token_Bk, sums_Bk[:, :1]], dim=1)


def _read_steps(unread: Sequence[Tensor], sentences: Sequence[_Sentence], step: int) -> list[int]:
    """Process the unread steps up to `step`; returns the rows that are not done. The only wait for the device."""
    sizes, staying = [results.shape[1] for results in unread], []
    for row, (sentence, numbers) in enumerate(zip(sentences, torch.cat(list(unread), dim=1).tolist(), strict=True)):
        begin = 0
        for number, size in enumerate(sizes, start=step - len(sizes) + 1):
            if sentence.process(number, numbers[begin : begin + size]):
                break
            begin += size
        else:
            staying.append(row)
    return staying


def best_candidates(log_p_BkV: Tensor, sums_Bk: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of the k open hypotheses of each sentence: sums, hypotheses and tokens, (B, c) each.

    The `count` best candidates lie in the `count` groups of neighbouring tokens with the largest maxima, and maxima of
    groups are much faster to compute than a top-k over everything.
    """
    num_groups = log_p_BkV.shape[2] // GROUP
    vocab, open_ = log_p_BkV.shape[2], log_p_BkV.shape[1]
    if open_ * num_groups < 2 * count:
        totals_Bn = (sums_Bk[..., None] + log_p_BkV).flatten(1)
        top_Bc, flat_Bc = totals_Bn.topk(min(count, totals_Bn.shape[1]), dim=1)
        return top_Bc, flat_Bc // vocab, flat_Bc % vocab
    in_groups = num_groups * GROUP
    group_best_Bkg = log_p_BkV[..., :in_groups].view(-1, open_, num_groups, GROUP).amax(-1) + sums_Bk[..., None]
    group_Bc = group_best_Bkg.flatten(1).topk(count, dim=1, sorted=False).indices
    first_Bc = group_Bc // num_groups * vocab + group_Bc % num_groups * GROUP
    places_Bn = (first_Bc[..., None] + torch.arange(GROUP, device=first_Bc.device)).flatten(1)
    if in_groups < vocab:  # the last few tokens belong to no group
        rest = torch.arange(open_ * vocab, device=first_Bc.device).view(open_, vocab)[:, in_groups:].flatten()
        places_Bn = torch.cat([places_Bn, rest.expand(len(places_Bn), -1)], dim=1)
    totals_Bn = log_p_BkV.flatten(1).gather(1, places_Bn) + sums_Bk.gather(1, places_Bn // vocab)
    top_Bc, slot_Bc = totals_Bn.topk(count, dim=1)
    flat_Bc = places_Bn.gather(1, slot_Bc)
    return top_Bc, flat_Bc // vocab, flat_Bc % vocab
