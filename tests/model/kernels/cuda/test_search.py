"""Searches with the kernels for GPUs: the same translations, and one kernel for the rows of all caches."""

import pytest
import torch

from configs import SearchSection
from model.kernels import use_kernels
from model.search import search
from tests.device.pseudo import DEVICE, metered
from tests.device.test_search import SECTIONS, SOURCES, a_model, assert_equal


@pytest.mark.parametrize("device", [torch.device("cpu"), DEVICE], ids=["cpu", "pseudo"])
@pytest.mark.parametrize("name", SECTIONS)
def test_the_same_is_found(name: str, device: torch.device) -> None:
    section = SearchSection(max_length_extra=9, **SECTIONS[name])
    n_best = section.beam if section.sampler is None else 2
    expected = search(a_model(), SOURCES, section, n_best=n_best)
    model = a_model()
    use_kernels(model, device, "cuda")
    assert_equal(search(model.to(device), SOURCES.to(device), section, n_best=n_best), expected)


def test_kernels_of_a_step() -> None:
    """Rows of a beam move by one index_select for all layers, where they took two for each."""
    found = {}
    for kernels in ("plain", "cuda"):
        model = a_model()
        use_kernels(model, DEVICE, kernels)
        section = SearchSection(beam=3, min_length_extra=20, max_length_extra=20, max_length_ratio=1e-9)
        with metered() as meter:
            search(model.to(DEVICE), SOURCES.to(DEVICE), section)
        assert meter.num_waits <= 1 + 3
        found[kernels] = meter.by_operator()
    num_layers = len(a_model().decoder.layers)
    steps = 20
    assert found["cuda"]["index_select"] <= steps < found["plain"]["index_select"] / num_layers
    assert found["cuda"].total() < found["plain"].total()
