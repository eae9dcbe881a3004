"""Dropout as a pure function of where an element stands."""

import math

import pytest
import torch
from torch import Tensor

from model import Objective
from model.kernels.cuda import use
from model.kernels.cuda.dropout import WORD, CudaDropout, philox, random_words, threshold
from model.loss import CrossEntropy
from tests.model.reference import tiny_model, tiny_section

CPU = torch.device("cpu")
SEEDS = (0x1234_5678_9ABC_DEF0, 77)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([WORD] * 4, [WORD] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(counter: list[int], key: list[int], words: str) -> None:
    """Of Random123, the authors' own library."""
    output = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))
    assert " ".join(f"{int(word):08x}" for word in output) == words


def tokens(*, seed: int = 5, pairs: int = 8, positions: int = 16) -> Tensor:
    place = torch.cartesian_prod(torch.arange(pairs), torch.arange(positions)).int()
    return torch.cat([torch.tensor([[seed, 0]]).int().expand(len(place), 2), place], dim=1)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9])
def test_the_dropped_fraction(p: float) -> None:
    """Within three standard deviations, and the mean stays."""
    dropped = (random_words(tokens(), 0, 2048) < threshold(p)).double()
    assert abs(dropped.mean() - p) < 3 * math.sqrt(p * (1 - p) / dropped.numel())
    x = torch.ones(128, 2048)
    out = torch.ops.zeromt.drop(x, tokens(), 0, p)
    assert torch.equal(out == 0, dropped == 1)
    torch.testing.assert_close(out[out != 0], torch.full_like(out[out != 0], 1 / (1 - p)))


def test_layers_pairs_positions_and_lanes_are_independent() -> None:
    """Masks that differ in one of them alone are not correlated, and neither are neighbouring features."""

    masks = {"mine": (tokens(), 0), "layer": (tokens(), 1), "seed": (tokens(seed=6), 0)}
    for name, column in (("pair", 2), ("position", 3), ("upper half of the seed", 1)):
        shifted = tokens()
        shifted[:, column] += 1
        masks[name] = shifted, 0
    dropped = {name: (random_words(*of, 512) < threshold(0.3)).double().flatten() for name, of in masks.items()}
    mine = dropped.pop("mine")
    for name, other in (*dropped.items(), ("feature", mine.roll(1))):
        correlation = torch.corrcoef(torch.stack([mine, other]))[0, 1]
        assert abs(correlation) < 4 / math.sqrt(mine.numel()), name


def test_sites_are_numbered() -> None:
    objective = Objective(tiny_model(tiny_section(dropout=0.3)), CrossEntropy(0.1))
    use(objective)
    sites = [part.site for part in objective.modules() if isinstance(part, CudaDropout)]
    assert sorted(sites) == list(range(len(sites)))
