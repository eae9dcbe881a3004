"""The process that the few calls of `make test` are forked from: starting one takes as long as many of them."""

from collections.abc import Iterator

import pytest

from tests.fuzz.client import Server


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.close()
