"""Greedy and beam search, batched, with a key/value cache; finished sentences leave the batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from configs import SearchSection
from model.transformer import DecoderState, Transformer

NEVER = -1e30
"""A log-probability that no hypothesis survives; finite, so that sums of it stay ordered."""


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
    """Longest translation in tokens, its end mark counted, for a source of so many tokens."""
    return min(int(source_length * section.max_length_ratio) + section.max_length_extra, model.max_positions)


@torch.inference_mode()
def search(
    model: Transformer, source_BS: Tensor, section: SearchSection, *, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Translate a batch.

    Args:
        model: in evaluation mode.
        source_BS: source ids, padded, each row with its end mark; every row holds at least one token.
        n_best: hypotheses wanted for each sentence, at most the beam.

    Returns:
        For each row, in order, its hypotheses with the best first.

    Raises:
        ValueError: n_best is more than the beam, or a source is longer than the model's positions.
    """
    if not 1 <= n_best <= section.beam:
        raise ValueError(
            f"n_best: {n_best} is not allowed with beam={section.beam}; allowed is 1 to the beam"
        )
    if source_BS.shape[1] > model.max_positions:
        raise ValueError(
            f"source: {source_BS.shape[1]} tokens; allowed is at most max_positions={model.max_positions}"
        )
    lengths = (source_BS != model.special.pad).sum(1).tolist()
    limits = [max_length(n, section, model) for n in lengths]
    if section.beam == 1:
        return _greedy(model, source_BS, limits, section.length_penalty)
    return _beam(model, source_BS, limits, section.beam, section.length_penalty, n_best)


def _forbid(log_p_NV: Tensor, model: Transformer) -> Tensor:
    """Padding and begin marks are never written."""
    log_p_NV[:, model.special.pad] = NEVER
    log_p_NV[:, model.special.bos] = NEVER
    return log_p_NV


def _greedy(model: Transformer, source_BS: Tensor, limits: list[int], alpha: float) -> list[list[Hypothesis]]:
    """The best token at each step."""
    eos = model.special.eos
    state = model.start(source_BS)
    rows = list(range(len(limits)))  # sentences still in the batch
    ids: list[list[int]] = [[] for _ in rows]
    sums = [0.0] * len(rows)
    last_N = source_BS.new_full((len(rows),), model.special.bos)
    step = 0
    while rows:
        step += 1
        best_N, last_N = _forbid(model.step(last_N, state), model).max(-1)
        staying = []
        for n, (row, token, log_p) in enumerate(zip(rows, last_N.tolist(), best_N.tolist(), strict=True)):
            sums[row] += log_p
            if token != eos:
                ids[row].append(token)
            # one place is left for the end mark, so that greedy and beam search share their limit
            if token != eos and step < limits[row] - 1:
                staying.append(n)
        if len(staying) < len(rows):
            keep = torch.tensor(staying, device=source_BS.device, dtype=torch.long)
            rows, last_N = [rows[n] for n in staying], last_N[keep]
            if rows:
                state.select(keep)
    return [
        [Hypothesis(ids=i, score=s / length_penalty(len(i) + 1, alpha))]
        for i, s in zip(ids, sums, strict=True)
    ]


class _Finished:
    """The best finished hypotheses of one sentence."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.best: list[Hypothesis] = []

    def add(self, ids: list[int], score: float) -> None:
        self.best.append(Hypothesis(ids=ids, score=score))
        self.best.sort(key=lambda h: -h.score)
        del self.best[self.capacity :]

    def cannot_improve(self, best_open_sum: float, limit: int, alpha: float) -> bool:
        """Whether no open hypothesis can still enter: sums only fall, and the largest divisor is that of the limit."""
        full = len(self.best) == self.capacity
        return full and best_open_sum / length_penalty(limit, alpha) <= self.best[-1].score


def _beam(
    model: Transformer, source_BS: Tensor, limits: list[int], beam: int, alpha: float, n_best: int
) -> list[list[Hypothesis]]:
    """Beam search: each step keeps the `beam` best open hypotheses of a sentence; it ends when none can enter its best."""
    device, eos = source_BS.device, model.special.eos
    finished = [_Finished(beam) for _ in limits]
    sentences = list(range(len(limits)))  # those still in the batch, in the order of its rows
    state = model.start(source_BS)
    _expand(state, beam, len(sentences), device)
    history_BkT = source_BS.new_empty((len(sentences), beam, 0))
    sums_Bk = torch.full((len(sentences), beam), NEVER, device=device)
    sums_Bk[:, 0] = 0.0  # all beams are alike at first
    last_N = source_BS.new_full((len(sentences) * beam,), model.special.bos)
    step = 0
    while sentences:
        step += 1
        log_p_BkV = _forbid(model.step(last_N, state), model).view(len(sentences), beam, -1)
        vocab = log_p_BkV.shape[-1]
        must_end = torch.tensor([step >= limits[s] for s in sentences], device=device)
        if bool(must_end.any()):
            only_eos = torch.full_like(log_p_BkV, NEVER)
            only_eos[..., eos] = log_p_BkV[..., eos]
            log_p_BkV = torch.where(must_end[:, None, None], only_eos, log_p_BkV)
        # each beam ends in one way at most, so twice the beam holds enough candidates that go on
        totals = (sums_Bk[..., None] + log_p_BkV).flatten(1)
        top_B2k, flat_B2k = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
        origin_B2k, token_B2k = flat_B2k // vocab, flat_B2k % vocab
        is_end = token_B2k == eos
        _collect(finished, sentences, history_BkT, top_B2k, origin_B2k, is_end, beam, step, alpha)
        open_B2k = top_B2k.masked_fill(is_end, 2 * NEVER)
        sums_Bk, slot_Bk = open_B2k.topk(beam, dim=1)
        origin_Bk, token_Bk = origin_B2k.gather(1, slot_Bk), token_B2k.gather(1, slot_Bk)
        history_BkT = torch.cat(
            [history_BkT.gather(1, origin_Bk[..., None].expand(-1, -1, step - 1)), token_Bk[..., None]], dim=2
        )
        best_open = sums_Bk[:, 0].tolist()
        staying = [
            b
            for b, s in enumerate(sentences)
            if step < limits[s] and not finished[s].cannot_improve(best_open[b], limits[s], alpha)
        ]
        rows_N = (torch.arange(len(sentences), device=device)[:, None] * beam + origin_Bk).flatten()
        if len(staying) < len(sentences):
            keep = torch.tensor(staying, device=device, dtype=torch.long)
            rows_N = rows_N.view(-1, beam)[keep].flatten()
            history_BkT, sums_Bk, token_Bk = history_BkT[keep], sums_Bk[keep], token_Bk[keep]
            sentences = [sentences[b] for b in staying]
            state.select(rows_N)
        else:
            state.select(rows_N, same_sources=True)
        last_N = token_Bk.flatten()
    return [f.best[:n_best] for f in finished]


def _expand(state: DecoderState, beam: int, num_sentences: int, device: torch.device) -> None:
    """Repeat every sentence `beam` times."""
    state.select(torch.arange(num_sentences, device=device).repeat_interleave(beam))


def _collect(
    finished: list[_Finished],
    sentences: list[int],
    history_BkT: Tensor,
    top_B2k: Tensor,
    origin_B2k: Tensor,
    is_end: Tensor,
    beam: int,
    step: int,
    alpha: float,
) -> None:
    """Put the candidates that end among the `beam` best of a step with the finished ones."""
    # an end that ranks below `beam` open candidates is not among the best of its step
    ends = is_end[:, :beam] & (top_B2k[:, :beam] > NEVER / 2)
    found = ends.nonzero()
    if not len(found):
        return
    rows, slots = found.unbind(1)
    origins = origin_B2k[rows, slots]
    ids = history_BkT[rows, origins].tolist()
    sums = top_B2k[rows, slots].tolist()
    for row, tokens, total in zip(rows.tolist(), ids, sums, strict=True):
        finished[sentences[row]].add(tokens, total / length_penalty(step, alpha))
