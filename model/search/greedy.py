"""One token after the other: the best, or one drawn at random. Finished sentences leave the batch by eighths."""

from collections.abc import Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.kernels import steps_between_looks, upload
from model.search.constraints import Constraints
from model.search.ensemble import Ensemble
from model.search.hypothesis import Hypothesis, length_penalty
from model.search.sampling import Choice, Draws, choose_best

DROPPED_FRACTION = 1 / 8
"""Finished rows leave the batch when they are this fraction of it, since the caches of all others move then."""


def greedy(model: Ensemble, source_BS: Tensor, constraints: Constraints, section: SearchSection) -> list[Hypothesis]:
    """The best token at each step, for each sentence."""
    return _decode(model, source_BS, constraints, section, list(range(source_BS.shape[0])), choose_best)


def sample(
    model: Ensemble,
    source_BS: Tensor,
    constraints: Constraints,
    section: SearchSection,
    keys: Sequence[int],
    num_samples: int,
) -> list[list[Hypothesis]]:
    """Independent samples of each sentence, the best first; `keys` tell the sentences' random numbers apart."""
    owners = [s for s in range(len(keys)) for _ in range(num_samples)]
    assert section.sampler is not None
    draws = Draws(
        section.sampler,
        section.seed,
        [(key, i) for key in keys for i in range(num_samples)],
        max(constraints.limits, default=0),
        eos=model.special.eos,
        device=source_BS.device,
    )
    found = _decode(model, source_BS, constraints, section, owners, draws)
    return [sorted(found[i : i + num_samples], key=lambda h: -h.score) for i in range(0, len(found), num_samples)]


def _decode(
    model: Ensemble,
    source_BS: Tensor,
    constraints: Constraints,
    section: SearchSection,
    owners: list[int],
    choose: Choice,
) -> list[Hypothesis]:
    """A hypothesis for each of the rows, which belong to the sentences `owners`."""
    device = source_BS.device
    state = model.start(source_BS)
    if len(owners) != source_BS.shape[0]:
        chosen = upload(owners, device)
        state.select(chosen, chosen)
    found = [Hypothesis(ids=[], log_prob=0.0, score=0.0)] * len(owners)
    ids: list[list[int]] = [[] for _ in owners]  # of those that are open, up to the last look
    rows = list(range(len(owners)))  # those still in the batch, of which some may be finished
    open_rows = set(rows)
    last_N = source_BS.new_full((len(rows),), model.special.bos)
    history_NT = source_BS.new_empty((len(rows), 0))
    sums_N = torch.zeros(len(rows), dtype=torch.float64, device=device)
    step, steps, unseen = 0, steps_between_looks(device), []
    while open_rows:
        step += 1
        log_p_NV = model.step(last_N, state)
        constraints.apply(log_p_NV[:, None], step, [owners[r] for r in rows], history_NT[:, None])
        last_N = choose(log_p_NV, rows, step)
        sums_N = sums_N + log_p_NV.gather(1, last_N[:, None])[:, 0]
        history_NT = torch.cat([history_NT, last_N[:, None]], dim=1)
        unseen += [last_N.double(), sums_N]
        if step % steps and step < max(constraints.limits[owners[r]] for r in open_rows):
            continue
        seen, unseen = torch.stack(unseen, dim=1).tolist(), []  # the one look at the device
        for row, numbers in zip(rows, seen, strict=True):
            if row in open_rows and (end := _take(ids[row], numbers, model.special.eos)) is not None:
                divisor = length_penalty(len(ids[row]) + 1, section.length_penalty, section.length_penalty_kind)
                found[row] = Hypothesis(ids=ids[row], log_prob=end, score=end / divisor)
                open_rows.remove(row)
        if open_rows and len(rows) - len(open_rows) >= DROPPED_FRACTION * len(rows):
            staying = [i for i, row in enumerate(rows) if row in open_rows]
            rows = [rows[i] for i in staying]
            keep = upload(staying, device)
            last_N, history_NT, sums_N = last_N[keep], history_NT[keep], sums_N[keep]
            state.select(keep, keep)
    return found


def _take(ids: list[int], numbers: Sequence[float], eos: int) -> float | None:
    """Add tokens to a row's ids, up to EOS; the sum of log-probabilities there, None where it goes on.

    Args:
        ids: of the row, so far.
        numbers: of each step, the token and the sum with it.
        eos: its id.
    """
    for token, total in zip(numbers[::2], numbers[1::2], strict=True):
        if token == eos:
            return total
        ids.append(int(token))
    return None
