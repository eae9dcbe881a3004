"""A cluster of this machine, a profile of it, and the command line beside its kubectl."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.launcher.clusters.kubernetes.fake_cluster import FakeCluster
from tests.launcher.conftest import ROOT, environment

SECONDS = 120


@pytest.fixture
def cluster(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """The cluster, whose kubectl is on PATH; its pods have the pretending trainer."""
    paths = os.pathsep.join([str(workplace / "fake"), str(ROOT)])
    found = FakeCluster(workplace / "cluster", environment(PYTHONPATH=paths))
    monkeypatch.setenv("PATH", f"{found.path}:{os.environ['PATH']}")
    yield found
    found.close()


def wait_until(is_so: Callable[[], object], what: str = "it") -> None:
    """Wait, and fail after two minutes."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)
