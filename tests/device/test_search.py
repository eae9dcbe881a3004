"""A search on a device: how often the host waits for it, and that nothing is found otherwise for that."""

from typing import Any

import pytest
import torch

from configs import SearchSection
from model import Transformer, kernels
from model.components.sampler import Truncated
from model.search import Hypothesis, search
from tests.device.pseudo import DEVICE, metered
from tests.model.reference import EOS, pad
from tests.model.search.plain import assert_same, peaked_model

GPUS = [torch.device("cuda")] if torch.cuda.is_available() else []
SOURCES = pad([[5, 4, 3, 6, EOS], [4, EOS], [5, 3, 3, EOS], [6, 6, 4, 5, 3, EOS], [3, EOS]])
PREFIXES = [[5, 6], [], [7], [], [3, 4, 5]]
SECTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3},
    "patient": {"beam": 3, "patience": 1.0},
    "repeats": {"beam": 3, "no_repeat_ngram": 2, "min_length_extra": 4},
    "sampled": {"beam": 1, "sampler": Truncated(top_k=5)},
}


def a_model() -> Transformer:
    return peaked_model(3, vocab=9, max_positions=32)


def hypotheses_of(section: SearchSection, device: str | torch.device = "cpu", **options: Any) -> list[list[Hypothesis]]:
    n_best = section.beam if section.sampler is None else 2
    return search(a_model().to(device), SOURCES.to(device), section, n_best=n_best, **options)


def assert_equal(n_best_lists: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for one, other in zip(n_best_lists, expected, strict=True):
        assert_same(one, [(h.ids, h.score) for h in other])


@pytest.mark.parametrize("name", SECTIONS)
def test_the_host_waits_every_eighth_step(name: str) -> None:
    section = SearchSection(
        **{**SECTIONS[name], "min_length_extra": 20, "max_length_extra": 20, "max_length_ratio": 1e-9}
    )
    model, source = a_model().to(DEVICE), SOURCES.to(DEVICE)
    with metered() as meter:
        n_best_lists = search(model, source, section)
    assert max(len(hypotheses[0].ids) for hypotheses in n_best_lists) == 19, "20 steps with EOS"
    assert meter.waits.total() <= 1 + 3, meter.waits
    assert meter.uploads.total() <= (section.sampler is not None), "random numbers, once"


@pytest.mark.parametrize("prefixes", [None, PREFIXES], ids=["free", "prefixes"])
@pytest.mark.parametrize("name", SECTIONS)
def test_looking_less_often_finds_the_same(
    name: str, prefixes: list[list[int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = SearchSection(max_length_extra=9, **SECTIONS[name])
    each_step = hypotheses_of(section, prefixes=prefixes)
    assert len({len(h.ids) for hypotheses in each_step for h in hypotheses}) > 2, "they end at different steps"
    for steps in (3, 8, 100):
        monkeypatch.setattr(kernels, "STEPS_ON_CPUS", steps)
        assert_equal(hypotheses_of(section, prefixes=prefixes), each_step)
    for device in (DEVICE, *GPUS):
        assert_equal(hypotheses_of(section, device, prefixes=prefixes), each_step)
