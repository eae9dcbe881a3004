"""A cluster of this machine, a profile of it, and the command line beside its kubectl."""

import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.clusters.kubernetes.fake_cluster import FakeCluster
from tests.launcher.conftest import ROOT, environment

PROFILE = """
scheduler: kubernetes
kubernetes:
  namespace: mt
  image: zeromt:1
  python: {python}
  directory: {folder}
  volumes: [{{mount: {folder}, claim: work}}]
  gpus_per_node: 0
  service_account: zeromt
  port: {port}
  node_timeout: 6
  start_timeout: 20
"""


@pytest.fixture
def cluster(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """The cluster, whose kubectl is on PATH; its pods have the pretending trainer."""
    paths = os.pathsep.join([str(workplace / "fake"), str(ROOT)])
    found = FakeCluster(workplace / "cluster", environment(PYTHONPATH=paths))
    monkeypatch.setenv("PATH", f"{found.path}:{os.environ['PATH']}")
    yield found
    found.close()


@pytest.fixture
def profile(workplace: Path) -> str:
    """Its name; the pods have this Python, and a folder that the launch does not see."""
    volume = workplace / "volume"
    shutil.copytree(workplace / "data", volume / "data")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = 20_000 + free.getsockname()[1] % 20_000
    file = workplace / "site.yaml"
    file.write_text(PROFILE.format(python=sys.executable, folder=volume, port=port))
    return file.name
