"""Groups of candidates of several sizes."""

from typing import Any

import pytest

from model.search import beam as beam_module


@pytest.fixture(params=[2, 64], ids=["groups of 2", "no groups"])
def candidate_groups(request: pytest.FixtureRequest) -> Any:
    """Tokens of a group of candidates: the tiny vocabularies here have none of 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_module, "GROUP", request.param)
        yield
