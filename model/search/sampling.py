"""Choice of the next token without a beam: the most probable one, or a random one."""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from configs.components import Sampler
from model.kernels import argmax, upload

Choice = Callable[[Tensor, Sequence[int], int], Tensor]
"""A function from log-probabilities (N, V), the numbers of the rows, and the step (from 1) to tokens (N)."""


def choose_best(log_p_NV: Tensor, _rows: Sequence[int], _step: int) -> Tensor:
    """The most probable token; the first of equal ones."""
    return argmax(log_p_NV)


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
