"""Kernels are put over by the tests themselves; Triton runs its own one element after the other, on a CPU."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.forked import Forked


@pytest.fixture
def way() -> str:
    """In place of the folder above: no second run."""
    return "by hand"


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Forked]:
    """As `forked`; Triton asks for this when it is imported."""
    with closing(Forked("env", "TRITON_INTERPRET=1")) as forked:
        yield forked
