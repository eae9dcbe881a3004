"""The real engine on 1, 2 and 4 ranks at every stage, against the plan. `tests.verification.plan_truth` prints it."""

from typing import Any

import pytest

from tests.verification.engine_bytes import CASES
from tests.verification.plan_truth import compare_bytes, compare_volume, measure, off

WITHIN = 0.03
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


@pytest.fixture(scope="module", params=[1, 2, 4])
def measured(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What every rank of so many found."""
    return measure(request.param)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_of_every_rank_and_those_it_sends(measured: list[dict[str, Any]], case: Any) -> None:
    for rank, found in enumerate(measured):
        compared = compare_bytes(case, found[case.name], world_size=len(measured), rank=rank)
        assert compared["weights"][1] > 0
        for part, pair in compared.items():
            assert off(pair) < WITHIN, (part, rank, pair)
    if len(measured) > 1:
        for kind, (planned, sent) in compare_volume(case, measured[0][case.name], world_size=len(measured)).items():
            # flags and norms are a few bytes
            assert sent == pytest.approx(planned, rel=WITHIN, abs=100), kind
