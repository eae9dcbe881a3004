"""Greedy and beam search, batched, with a key/value cache; finished sentences leave the batch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from configs import SearchSection
from model.transformer import Transformer

NEVER = -1e30
"""A log-probability that no hypothesis survives; finite, so that sums of it stay numbers."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Hypothesis:
    """A translation: target ids without begin and end marks, and its length-normalised log-probability."""

    ids: list[int]
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """What a hypothesis of `length` tokens (its end mark counted) is divided by: ((5 + length) / 6)^alpha.

    Wu et al. (2016), equation 14. alpha 0 compares bare sums of log-probabilities.
    """
    return float(((5 + length) / 6) ** alpha)


def max_length(source_length: int, section: SearchSection, model: Transformer) -> int:
    """Longest translation in tokens, its end mark counted, for a source of so many tokens; at least the end mark."""
    limit = int(source_length * section.max_length_ratio) + section.max_length_extra
    return max(1, min(limit, model.max_positions))


@torch.inference_mode()
def search(model: Transformer, source_BS: Tensor, section: SearchSection, *, n_best: int = 1) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        model: in evaluation mode.
        source_BS: source ids, padded, each row with its end mark; every row holds at least one token.
        n_best: hypotheses wanted for each sentence, at most the beam.

    Returns:
        For each row, in order, its hypotheses with the best first: `n_best` of them, or all there are where the limit
        of length allows fewer. A model that gives NaN has the empty hypothesis, with a score of NaN.

    Raises:
        ValueError: n_best is more than the beam, or a source is longer than the model's positions.
    """
    assert not model.training, "search needs a model in evaluation mode"
    if not 1 <= n_best <= section.beam:
        raise ValueError(f"n_best: {n_best} is not allowed with beam={section.beam}; allowed is 1 to the beam")
    if source_BS.shape[1] > model.max_positions:
        raise ValueError(f"source: {source_BS.shape[1]} tokens; allowed is at most max_positions={model.max_positions}")
    lengths = (source_BS != model.special.pad).sum(1).tolist()
    limits = [max_length(n, section, model) for n in lengths]
    if section.beam == 1:
        return _greedy(model, source_BS, limits, section.length_penalty)
    return _beam(model, source_BS, limits, section.beam, section.length_penalty, n_best)


def _restrict(log_p_NV: Tensor, model: Transformer, must_end: list[bool]) -> Tensor:
    """Padding and begin marks are never written, and a hypothesis at its limit can only end. Changes its argument."""
    log_p_NV[:, model.special.pad] = NEVER
    log_p_NV[:, model.special.bos] = NEVER
    if not any(must_end):
        return log_p_NV
    must_end_N = torch.tensor(must_end, device=log_p_NV.device)
    restricted = log_p_NV.masked_fill(must_end_N[:, None], NEVER)
    restricted[:, model.special.eos] = log_p_NV[:, model.special.eos]
    return restricted


def _greedy(model: Transformer, source_BS: Tensor, limits: list[int], alpha: float) -> list[list[Hypothesis]]:
    """The best token at each step."""
    eos = model.special.eos
    state = model.start(source_BS)
    sentences = list(range(len(limits)))  # those still in the batch, in the order of its rows
    ids: list[list[int]] = [[] for _ in limits]
    sums = [0.0] * len(limits)
    last_N = source_BS.new_full((len(limits),), model.special.bos)
    step = 0
    while sentences:
        step += 1
        log_p_NV = _restrict(model.step(last_N, state), model, [step >= limits[s] for s in sentences])
        best_N, last_N = log_p_NV.max(-1)
        staying = []
        for row, (s, token, log_p) in enumerate(zip(sentences, last_N.tolist(), best_N.tolist(), strict=True)):
            sums[s] += log_p
            if token != eos:
                ids[s].append(token)
                staying.append(row)
        if len(staying) < len(sentences):
            keep = torch.tensor(staying, device=source_BS.device, dtype=torch.long)
            state.select(keep)
            last_N = last_N[keep]
            sentences = [sentences[row] for row in staying]
    return [[Hypothesis(ids=i, score=s / length_penalty(len(i) + 1, alpha))] for i, s in zip(ids, sums, strict=True)]


class _Finished:
    """The best finished hypotheses of one sentence, as many as are wanted."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.best: list[Hypothesis] = []

    def add(self, ids: list[int], score: float) -> None:
        self.best.append(Hypothesis(ids=ids, score=score))
        self.best.sort(key=lambda h: -h.score)
        del self.best[self.capacity :]

    def cannot_improve(self, best_open_sum: float, limit: int, alpha: float) -> bool:
        """Whether no open hypothesis can still enter: sums only fall, and the largest divisor is that of the limit."""
        is_full = len(self.best) == self.capacity
        return is_full and best_open_sum / length_penalty(limit, alpha) <= self.best[-1].score


def _beam(
    model: Transformer, source_BS: Tensor, limits: list[int], beam: int, alpha: float, n_best: int
) -> list[list[Hypothesis]]:
    """Beam search: each step keeps the `beam` best open hypotheses of a sentence, until none can enter its `n_best`.

    Shapes: k open hypotheses of a sentence, one at first and up to `beam` then; c candidates to follow them.
    """
    device, eos = source_BS.device, model.special.eos
    finished = [_Finished(n_best) for _ in limits]
    sentences = list(range(len(limits)))  # those still in the batch, in the order of its rows
    state = model.start(source_BS)
    history_BkT = source_BS.new_empty((len(limits), 1, 0))
    sums_Bk = torch.zeros((len(limits), 1), device=device)
    last_N = source_BS.new_full((len(limits),), model.special.bos)
    step = 0
    while sentences:
        step += 1
        num_open = sums_Bk.shape[1]
        must_end = [step >= limits[s] for s in sentences for _ in range(num_open)]
        log_p_BkV = _restrict(model.step(last_N, state), model, must_end).view(*sums_Bk.shape, -1)
        vocab = log_p_BkV.shape[-1]
        totals = (sums_Bk[..., None] + log_p_BkV).flatten(1)
        # each open hypothesis ends in one way only, so twice the beam holds enough candidates that go on
        top_Bc, flat_Bc = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
        origin_Bc, token_Bc = flat_Bc // vocab, flat_Bc % vocab
        is_end_Bc = token_Bc == eos
        # an end that ranks below `beam` candidates is not among the best of its step
        ends = is_end_Bc & (top_Bc > NEVER / 2)
        for row, ids, total in _read(ends[:, :beam], history_BkT, origin_Bc, top_Bc):
            finished[sentences[row]].add(ids, total / length_penalty(step, alpha))

        sums_Bk, slot_Bk = top_Bc.masked_fill(is_end_Bc, 2 * NEVER).topk(min(beam, top_Bc.shape[1]), dim=1)
        staying = [
            row
            for row, (s, best_open) in enumerate(zip(sentences, sums_Bk[:, 0].tolist(), strict=True))
            if step < limits[s] and not finished[s].cannot_improve(best_open, limits[s], alpha)
        ]
        origin_Bk, token_Bk = origin_Bc.gather(1, slot_Bk), token_Bc.gather(1, slot_Bk)
        history_BkT = history_BkT.gather(1, origin_Bk[..., None].expand(-1, -1, step - 1))
        history_BkT = torch.cat([history_BkT, token_Bk[..., None]], dim=2)
        rows_Bk = torch.arange(len(sentences), device=device)[:, None] * num_open + origin_Bk
        all_stay = len(staying) == len(sentences)
        if not all_stay:
            keep = torch.tensor(staying, device=device, dtype=torch.long)
            rows_Bk, token_Bk, sums_Bk, history_BkT = (x[keep] for x in (rows_Bk, token_Bk, sums_Bk, history_BkT))
            sentences = [sentences[row] for row in staying]
        state.select(rows_Bk.flatten(), same_sources=all_stay and sums_Bk.shape[1] == num_open)
        last_N = token_Bk.flatten()
    return [f.best or [Hypothesis(ids=[], score=math.nan)] for f in finished]


def _read(
    chosen_Bc: Tensor, history_BkT: Tensor, origin_Bc: Tensor, top_Bc: Tensor
) -> list[tuple[int, list[int], float]]:
    """Row, ids and sum of the candidates that are chosen."""
    rows, slots = chosen_Bc.nonzero().unbind(1)
    ids = history_BkT[rows, origin_Bc[rows, slots]]
    return list(zip(rows.tolist(), ids.tolist(), top_Bc[rows, slots].tolist(), strict=True))
