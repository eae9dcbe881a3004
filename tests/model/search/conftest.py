"""Groups of candidates of several sizes."""

import pytest

from model.search import beam as beam_module


@pytest.fixture
def candidate_groups(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two tokens with kernels; without, the tiny vocabularies here have none of 64."""
    monkeypatch.setattr(beam_module, "GROUP", 2 if way == "kernels" else 64)
