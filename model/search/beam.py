"""Beam search, batched; sentences leave the batch when enough has ended, or no open hypothesis can still win."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from configs import SearchSection
from model.search.constraints import NEVER, Constraints
from model.search.ensemble import Ensemble
from model.search.hypothesis import Hypothesis, length_penalty

GROUP = 64
"""Neighbouring tokens of which the best one alone is looked at first."""


class _Finished:
    """The best finished hypotheses of one sentence, as many as are wanted."""

    def __init__(self, capacity: int, limit: int, section: SearchSection) -> None:
        self._capacity = capacity
        self._section = section
        self._largest_divisor = self._divisor(limit)
        self._left = max(capacity, section.patience * section.beam) if section.patience else math.inf
        self.best: list[Hypothesis] = []

    def add(self, ids: list[int], total: float) -> None:
        """Take a finished hypothesis, where it is one of the best."""
        score = total / self._divisor(len(ids) + 1)
        self.best.append(Hypothesis(ids=ids, log_prob=total, score=score))
        self.best.sort(key=lambda h: -h.score)
        del self.best[self._capacity :]
        self._left -= 1

    def is_done(self, best_open_sum: float) -> bool:
        """Whether as many have ended as the patience wants, or no open hypothesis can still enter.

        It cannot where its sum over the largest divisor, that of the limit, is too low: sums only fall.
        """
        is_full = len(self.best) == self._capacity
        return self._left <= 0 or (is_full and best_open_sum / self._largest_divisor <= self.best[-1].score)

    def _divisor(self, length: int) -> float:
        return length_penalty(length, self._section.length_penalty, self._section.length_penalty_kind)


def beam_search(
    model: Ensemble, source_BS: Tensor, constraints: Constraints, section: SearchSection, n_best: int
) -> list[list[Hypothesis]]:
    """Each step keeps the `beam` best open hypotheses of a sentence, until it is done (see `_Finished`).

    Shapes: k open hypotheses of a sentence, one at first and up to `beam` then; c candidates to follow them.
    """
    device, eos, beam, limits = source_BS.device, model.special.eos, section.beam, constraints.limits
    finished = [_Finished(n_best, limit, section) for limit in limits]
    sentences = list(range(len(limits)))  # those still in the batch, in the order of its rows
    state = model.start(source_BS)
    history_BkT = source_BS.new_empty((len(limits), 1, 0))
    sums_Bk = torch.zeros((len(limits), 1), device=device)
    last_N = source_BS.new_full((len(limits),), model.special.bos)
    step = 0
    while sentences:
        step += 1
        num_open = sums_Bk.shape[1]
        log_p_BkV = model.step(last_N, state).view(*sums_Bk.shape, -1)
        constraints.apply(log_p_BkV, step, sentences, history_BkT)
        # each open hypothesis ends in one way only, so twice the beam holds enough candidates that go on
        top_Bc, origin_Bc, token_Bc = best_candidates(log_p_BkV, sums_Bk, 2 * beam)
        is_end_Bc = token_Bc == eos
        sums_Bk, slot_Bk = top_Bc.masked_fill(is_end_Bc, 2 * NEVER).topk(min(beam, top_Bc.shape[1]), dim=1)
        # an end that ranks below `beam` candidates is not among the best of its step
        ends = top_Bc.masked_fill(~is_end_Bc, 2 * NEVER)[:, :beam]
        *ends_by_slot, best_open = torch.cat([ends, sums_Bk[:, :1]], dim=1).T.tolist()  # the one look at the device
        for row, ids, total in _ended(ends_by_slot, history_BkT, origin_Bc):
            finished[sentences[row]].add(ids, total)
        staying = [
            row for row, s in enumerate(sentences) if step < limits[s] and not finished[s].is_done(best_open[row])
        ]
        if not staying:
            break
        origin_Bk, token_Bk = origin_Bc.gather(1, slot_Bk), token_Bc.gather(1, slot_Bk)
        history_BkT = history_BkT.gather(1, origin_Bk[..., None].expand(-1, -1, step - 1))
        history_BkT = torch.cat([history_BkT, token_Bk[..., None]], dim=2)
        rows_Bk = torch.arange(len(sentences), device=device)[:, None] * num_open + origin_Bk
        keep = None  # all do
        if len(staying) < len(sentences):
            keep = torch.tensor(staying, device=device, dtype=torch.long)
            rows_Bk, token_Bk, sums_Bk, history_BkT = (x[keep] for x in (rows_Bk, token_Bk, sums_Bk, history_BkT))
            sentences = [sentences[row] for row in staying]
        state.select(rows_Bk.flatten(), keep)
        last_N = token_Bk.flatten()
    return [f.best or [Hypothesis(ids=[], log_prob=math.nan, score=math.nan)] for f in finished]


def _ended(
    ends_by_slot: list[list[float]], history_BkT: Tensor, origin_Bc: Tensor
) -> Iterator[tuple[int, list[int], float]]:
    """Row, ids and sum of the hypotheses that end."""
    ended = [
        (row, slot, total)
        for slot, totals in enumerate(ends_by_slot)
        for row, total in enumerate(totals)
        if total > NEVER / 2
    ]
    if ended:
        rows, slots, totals = zip(*ended, strict=True)
        yield from zip(rows, history_BkT[rows, origin_Bc[rows, slots]].tolist(), totals, strict=True)


def best_candidates(log_p_BkV: Tensor, sums_Bk: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best tokens to follow k open hypotheses of each sentence: sums, hypotheses and tokens, (B, c) each.

    The `count` best candidates stand in the `count` groups of neighbouring tokens whose best ones are best, and the
    best one of a group is found much faster than the best few of everything.
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
