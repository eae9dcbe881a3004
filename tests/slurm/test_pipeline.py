"""A pipeline whose steps are jobs: whatever happens to driver and jobs, its results are those of one machine."""

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
from tests.slurm.conftest import PATIENCE, clients
from tests.waiting import wait_until
from tests.zeromt.pipeline import graph
from tests.zeromt.pipeline.test_kills import results

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3000)]
PLACE = {"kind": "slurm", "site": "cpu", "settings": {"signal_lead": 60}}
COMMAND = [sys.executable, "-P", "-m", "zeromt", "pipeline", "toy.yaml"]
RECORDS = Path("out/toy/.pipeline")


def written(folder: Path, launch: Mapping[str, str], **keys: Any) -> Path:
    """A folder with the toy graph, and options of `zeromt launch` by step."""
    folder.mkdir()
    steps = {name: {**step, "launch": launch.get(name, "")} for name, step in graph.steps().items()}
    graph.write(folder, **keys, steps=steps)
    return folder


class Driver:
    """`zeromt pipeline` beside the cluster's login."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._logs, self.err = folder / RECORDS, folder / "err.txt"
        variables = {**environment(), **clients(cluster), "XDG_STATE_HOME": str(folder / "state")}
        with self.err.open("wb") as err:
            self.process = subprocess.Popen(COMMAND, cwd=folder, env=variables, stdout=err, stderr=err)

    def job(self, step: str) -> str:
        """The job of a step, once it is sent or adopted."""
        log = self._logs / f"{step}.log"

        def job_numbers() -> list[str]:
            return re.findall(r"^zeromt: job ([\d, ]+);", log.read_text() if log.exists() else "", re.MULTILINE)

        return wait_until(job_numbers, self.said, seconds=PATIENCE)[-1]

    def wait(self, code: int) -> None:
        assert self.process.wait(PATIENCE) == code, self.said()

    def said(self) -> str:
        return self.err.read_text()


def test_killed_drivers_and_a_killed_job(cluster: Cluster, tmp_path: Path) -> None:
    local = written(tmp_path / "local", {"backward": "--nproc 2"})
    subprocess.run(COMMAND, cwd=local, env=environment(), stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True)
    folder = written(tmp_path / "here", {"backward": "--nodes 2 --nproc 1"}, place=PLACE)
    driver = Driver(cluster, folder)
    wait_until((folder / "state/zeromt").exists, driver.said)
    driver.process.kill()  # before, while or after the job is sent, which happens once in any case: see the end
    driver.wait(-signal.SIGKILL)

    driver = Driver(cluster, folder)
    cluster.ask("scancel", lost := driver.job("backward"))
    driver.wait(1)
    assert "error: step backward failed with exit code 1" in driver.said()
    assert f"backward | zeromt: job {lost} left no exit code: it was cancelled" in driver.said()

    driver = Driver(cluster, folder)
    sent = driver.job("translated")
    driver.process.send_signal(signal.SIGTERM)
    driver.wait(75)
    for job in sent.split(", "):
        cluster.wait_for_job(job, ("COMPLETED",))  # meanwhile

    driver = Driver(cluster, folder)
    driver.wait(0)
    assert driver.job("translated") == sent
    assert results(folder) == results(local)
    assert len(results(folder)) == 10
    shown = cluster.ask("squeue", "--noheader", "--states=all", "--format", "%F %j").stdout.splitlines()
    names = Counter(line.split()[1].partition(".")[0] for line in set(shown))
    arrays = {"translated": 2, "distilled": 2}
    assert {name: names[name] for name in graph.steps()} == {
        name: arrays.get(name, 2 if name == "backward" else 1) for name in graph.steps()
    }
