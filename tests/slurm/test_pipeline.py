"""A pipeline whose steps are jobs: whatever happens to driver and jobs, its results are those of one machine."""

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import environment
from tests.slurm.cluster import Cluster
from tests.slurm.conftest import PATIENCE
from tests.waiting import wait_until
from tests.zeromt.pipeline import graph

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3000)]
PLACE = {"kind": "slurm", "site": "cpu", "settings": {"signal_lead": 60}, "poll_seconds": 1}
COMMAND = [sys.executable, "-P", "-m", "zeromt", "pipeline", "toy.yaml"]
RECORDS = Path("out/toy/.pipeline")


def written(folder: Path, launch: Mapping[str, str], **keys: Any) -> Path:
    """A folder with the toy graph, and options of `zeromt launch` by step."""
    folder.mkdir()
    steps = {name: {**step, "launch": launch.get(name, "")} for name, step in graph.steps().items()}
    graph.write(folder, **keys, steps=steps)
    return folder


def results(folder: Path) -> dict[str, Any]:
    """The digests of what the steps have made, but for seconds in an evaluation."""
    records = {path.stem: json.loads(path.read_text()) for path in (folder / RECORDS).glob("*.json")}
    return {name: one["results"] for name, one in records.items() if "results" in one and name != "scores"}


class Driver:
    """`zeromt pipeline` beside the cluster's login."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        variables = {name: cluster.environment[name] for name in ("SLURM_CONF", "PATH")}
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                COMMAND, cwd=folder, env={**environment(), **variables}, stdout=out, stderr=err
            )

    def job(self, step: str, how: str = "is sent") -> str:
        """The job of a step, once it is sent or adopted."""
        said = rf"^{step}: job ([\d, ]+) {how}$"
        found = wait_until(lambda: re.search(said, self.out.read_text(), re.MULTILINE), self.said, seconds=PATIENCE)
        assert found is not None
        return found[1]

    def wait(self, code: int) -> None:
        assert self.process.wait(PATIENCE) == code, self.said()

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()


def test_killed_drivers_and_a_killed_job(cluster: Cluster, tmp_path: Path) -> None:
    local = written(tmp_path / "local", {"backward": "--nproc 2"})
    subprocess.run(COMMAND, cwd=local, env=environment(), stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    folder = written(tmp_path / "here", {"backward": "--nodes 2 --nproc 1"}, place=PLACE)
    dry = subprocess.run([*COMMAND, "--dry-run"], cwd=folder, env=environment(), capture_output=True, timeout=PATIENCE)
    assert b"dataset    runs: never begun" in dry.stdout

    driver = Driver(cluster, folder)
    wait_until(lambda: list((folder / RECORDS).glob("dataset.*.jobs")), driver.said)
    driver.process.kill()  # before, while or after the job is sent, which happens once in any case: see the end
    driver.wait(-signal.SIGKILL)

    driver = Driver(cluster, folder)
    driver.job("dataset", "is (?:adopted|sent)")
    cluster.ask("scancel", lost := driver.job("backward"))
    driver.wait(1)
    assert f"error: step backward failed with exit code 1 (job {lost})" in driver.said()
    assert f"backward | job {lost}: CANCELLED" in driver.said()

    driver = Driver(cluster, folder)
    sent = driver.job("translated")
    driver.process.send_signal(signal.SIGTERM)
    driver.wait(75)
    assert f"translated: job {sent} goes on; `scancel {sent.replace(',', '')}` would end it" in driver.said()
    for job in sent.split(", "):
        cluster.wait_for_job(job, ("COMPLETED",))  # meanwhile

    driver = Driver(cluster, folder)
    assert driver.job("translated", "is adopted") == sent
    driver.wait(0)
    assert results(folder) == results(local)
    assert len(results(folder)) == 10
    shown = cluster.ask("squeue", "--noheader", "--states=all", "--format", "%F %j").stdout.splitlines()
    names = Counter(line.split()[1].partition(".")[0] for line in set(shown))
    arrays = {"translated": 2, "distilled": 2}
    assert {name: names[name] for name in graph.steps()} == {
        name: arrays.get(name, 2 if name == "backward" else 1) for name in graph.steps()
    }
