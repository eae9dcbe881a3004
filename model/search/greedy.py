"""Greedy search and sampling. Finished rows leave the batch once they are an eighth of its rows."""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from configs import SearchSection
from model.kernels import steps_between_syncs, upload
from model.parts import Sampler
from model.search.constraints import Constraints
from model.search.ensemble import Ensemble
from model.search.scoring import Hypothesis, length_penalty

Choice = Callable[[Tensor, Sequence[int], int], Tensor]
"""A function from log-probabilities (N, V), the numbers of the rows, and the step (from 1) to tokens (N)."""


def choose_best(log_p_NV: Tensor, _rows: Sequence[int], _step: int) -> Tensor:
    """The most probable token; the first of equal ones."""
    return log_p_NV.argmax(-1)


class Draws:
    """Samples tokens. A row's samples depend only on the seed, its key and its probabilities, not on the rest of the
    batch.

    Args:
        sampler: selects the candidates and their probabilities.
        seed: of the random numbers.
        keys: one for each row, such as (line, number of the sample).
        num_steps: maximum number of tokens of a row.
        eos: the token to return if the model outputs NaN.
    """

    def __init__(
        self,
        sampler: Sampler,
        seed: int,
        keys: Sequence[tuple[int, int]],
        num_steps: int,
        *,
        eos: int,
        device: torch.device,
    ) -> None:
        self._candidates: Callable[[Tensor], tuple[Tensor, Tensor]] = sampler.candidates
        self._eos = eos
        draws = [
            torch.rand(num_steps, dtype=torch.float64, generator=torch.Generator().manual_seed(_seed(seed, key)))
            for key in keys
        ]
        self._uniform_NT = torch.stack(draws).to(device) if draws else torch.empty(0, num_steps, device=device)

    def __call__(self, log_p_NV: Tensor, rows: Sequence[int], step: int) -> Tensor:
        """Draw the next token of each row; arguments and result are those of `Choice`."""
        p_NV, token_NV = self._candidates(log_p_NV)
        below_NV = p_NV.double().cumsum(-1)  # fp64, because in fp32 a long tail would be lost to rounding
        uniform_N1 = self._uniform_NT[upload(rows, log_p_NV.device), step - 1][:, None]
        place_N1 = (below_NV <= uniform_N1 * below_NV[:, -1:]).sum(-1, keepdim=True)
        # rounding may go past the last candidate with a nonzero probability
        place_N1 = torch.minimum(place_N1, (p_NV > 0).sum(-1, keepdim=True) - 1).clamp_(min=0)
        token_N = token_NV.gather(1, place_N1)[:, 0]
        return token_N.masked_fill(below_NV[:, -1].isnan(), self._eos)


def _seed(seed: int, key: tuple[int, int]) -> int:
    """A seed for each key, hashed because torch's generators are correlated for nearby seeds."""
    digest = hashlib.sha256(f"{seed}:{key[0]}:{key[1]}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


DROPPED_FRACTION = 1 / 8
"""Finished rows are removed once they are this fraction of the batch: each removal copies the caches of all others."""


def greedy(model: Ensemble, source_BS: Tensor, constraints: Constraints, section: SearchSection) -> list[Hypothesis]:
    """Decode each sentence with the most probable token at each step."""
    return _decode(model, source_BS, constraints, section, list(range(source_BS.shape[0])), choose_best)


def sample(
    model: Ensemble,
    source_BS: Tensor,
    constraints: Constraints,
    section: SearchSection,
    keys: Sequence[int],
    num_samples: int,
) -> list[list[Hypothesis]]:
    """Independent samples for each sentence, best first. `keys` seed each sentence's random numbers."""
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
    hypotheses = _decode(model, source_BS, constraints, section, owners, draws)
    return [
        sorted(hypotheses[i : i + num_samples], key=lambda h: -h.score) for i in range(0, len(hypotheses), num_samples)
    ]


def _decode(
    model: Ensemble,
    source_BS: Tensor,
    constraints: Constraints,
    section: SearchSection,
    owners: list[int],
    choose: Choice,
) -> list[Hypothesis]:
    """Decode one hypothesis for each row; row i belongs to the sentence `owners[i]`."""
    device = source_BS.device
    states = model.start(source_BS)
    if len(owners) != source_BS.shape[0]:
        chosen = upload(owners, device)
        for state in states:
            state.select(chosen, chosen)
    hypotheses = [Hypothesis(ids=[], log_prob=0.0, score=0.0)] * len(owners)
    ids: list[list[int]] = [[] for _ in owners]  # tokens up to the last read
    rows = list(range(len(owners)))  # still in the batch; some may be finished
    open_rows = set(rows)
    last_N = source_BS.new_full((len(rows),), model.special.bos)
    history_NT = source_BS.new_empty((len(rows), 0))
    sums_N = torch.zeros(len(rows), dtype=torch.float64, device=device)
    step, steps, unread = 0, steps_between_syncs(device), []
    while open_rows:
        step += 1
        log_p_NV = model.step(last_N, states)
        constraints.apply(log_p_NV[:, None], step, [owners[r] for r in rows], history_NT[:, None])
        last_N = choose(log_p_NV, rows, step)
        sums_N = sums_N + log_p_NV.gather(1, last_N[:, None])[:, 0]
        if constraints.need_history:
            history_NT = torch.cat([history_NT, last_N[:, None]], dim=1)
        unread += [last_N.double(), sums_N]
        if step % steps and step < max(constraints.limits[owners[r]] for r in open_rows):
            continue
        read, unread = torch.stack(unread, dim=1).tolist(), []  # the only wait for the device
        for row, numbers in zip(rows, read, strict=True):
            if row in open_rows and (end := _append_tokens(ids[row], numbers, model.special.eos)) is not None:
                divisor = length_penalty(len(ids[row]) + 1, section.length_penalty, section.length_penalty_kind)
                hypotheses[row] = Hypothesis(ids=ids[row], log_prob=end, score=end / divisor)
                open_rows.remove(row)
        if open_rows and len(rows) - len(open_rows) >= DROPPED_FRACTION * len(rows):
            staying = [i for i, row in enumerate(rows) if row in open_rows]
            rows = [rows[i] for i in staying]
            keep = upload(staying, device)
            last_N, history_NT, sums_N = last_N[keep], history_NT[keep], sums_N[keep]
            for state in states:
                state.select(keep, keep)
    return hypotheses


def _append_tokens(ids: list[int], numbers: Sequence[float], eos: int) -> float | None:
    """Append tokens to a row's ids, up to EOS; returns the log-probability sum at EOS, None if the row is unfinished.

    Args:
        ids: of the row so far.
        numbers: for each step, the token and the sum including it.
        eos: id of EOS.
    """
    for token, total in zip(numbers[::2], numbers[1::2], strict=True):
        if token == eos:
            return total
        ids.append(int(token))
    return None
