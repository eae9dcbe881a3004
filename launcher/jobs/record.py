"""Which jobs were submitted for a run, and to which cluster: `logs/jobs.json` in the run's folder."""

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.components import kinds
from configs.load import parse_tree
from launcher.jobs.cluster import Cluster
from launcher.jobs.job import UNKNOWN, JobState
from trainer.runs.layout import JOBS_FILE, LOGS
from trainer.runs.status import Status

_OTHERS = "slurm"
"""The kind of a job that status.json names and that `zeromt launch` has not submitted: SLURM has numbered it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunsJob:
    """A job of a run, and those that were submitted with it."""

    id: str
    cluster: Cluster | None
    """None: of a kind that is not known here."""
    together: list[str]
    """It, and those that were submitted with it, the first first."""

    def query(self) -> JobState | None:
        """What the cluster says of it; see `Cluster.query`."""
        return JobState(id=self.id, state=UNKNOWN) if self.cluster is None else self.cluster.query(self.id)

    def waiting(self) -> list[str]:
        """Those that wait in their queue."""
        if self.cluster is None:
            return []
        states = {job: self.cluster.query(job) for job in self.together}
        return [job for job, state in states.items() if state is not None and state.is_waiting]


def write_submitted(run: Path, cluster: Cluster, jobs: list[str]) -> None:
    """Write down what was submitted, and for which folder: a copy of it has no jobs.

    Raises:
        OSError: it cannot be written.
    """
    tree = {"run": str(run.resolve()), "section": dataclasses.asdict(cluster), "jobs": jobs, "time": time.time()}
    (run / LOGS / JOBS_FILE).write_text(json.dumps(tree) + "\n", encoding="utf-8")


def job_of_run(run: Path, written: Status | None) -> RunsJob | None:
    """The job that writes a run, or is to: the newest of those that its status names and those that were submitted.

    Args:
        run: its folder.
        written: its status.
    """
    submitted = _read(run)
    job = written.job_id if written is not None else None
    if submitted and (written is None or (written.updated or 0.0) < submitted["time"]):
        job = submitted["jobs"][0]
    if job is None:
        return None
    if submitted and job in submitted["jobs"]:
        return RunsJob(id=job, cluster=_cluster(submitted["section"]), together=submitted["jobs"])
    return RunsJob(id=job, cluster=_cluster({"kind": _OTHERS}), together=[job])


def _read(run: Path) -> dict[str, Any] | None:
    """What was written for a folder; None where nothing was, or something else stands there."""
    try:
        tree = json.loads((run / LOGS / JOBS_FILE).read_text(encoding="utf-8"))
        jobs = [job for job in tree["jobs"] if isinstance(job, str)]
        found = {"section": dict(tree["section"]), "jobs": jobs, "time": float(tree["time"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if jobs and tree.get("run") == str(run.resolve()) else None


def _cluster(section: dict[str, Any]) -> Cluster | None:
    """The cluster of a profile's section; None where it has become something else since."""
    try:
        cls = kinds("cluster").get(str(section.get("kind")))
        found: Cluster | None = None if cls is None else parse_tree(section, cls)
    except UserError:
        return None
    return found
