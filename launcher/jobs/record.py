"""The record of submitted jobs and their cluster: `logs/jobs.json` in the run's folder."""

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
"""The kind of a job that status.json names but `zeromt launch` has not submitted: its id is SLURM's."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunsJob:
    """A job of a run, and the jobs submitted with it."""

    id: str
    cluster: Cluster | None
    """None for an unknown kind."""
    together: list[str]
    """All jobs submitted together with it, in order."""

    def query(self) -> JobState | None:
        """The state of the job; see `Cluster.query`."""
        return JobState(id=self.id, state=UNKNOWN) if self.cluster is None else self.cluster.query(self.id)

    def waiting(self) -> list[str]:
        """The jobs that are waiting in the queue."""
        if self.cluster is None:
            return []
        states = {job: self.cluster.query(job) for job in self.together}
        return [job for job, state in states.items() if state is not None and state.is_waiting]


def write_submitted(run: Path, cluster: Cluster, jobs: list[str]) -> None:
    """Record submitted jobs and their run's folder; in a copy of the folder the record does not count.

    Raises:
        OSError: it cannot be written.
    """
    tree = {"run": str(run.resolve()), "section": dataclasses.asdict(cluster), "jobs": jobs, "time": time.time()}
    (run / LOGS / JOBS_FILE).write_text(json.dumps(tree) + "\n", encoding="utf-8")


def job_of_run(run: Path, written: Status | None) -> RunsJob | None:
    """The job that writes a run or will: the newest of the one in its status and the submitted ones.

    Args:
        run: its folder.
        written: the run's status.
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
    """The record for a folder; None if there is none or it is invalid."""
    try:
        tree = json.loads((run / LOGS / JOBS_FILE).read_text(encoding="utf-8"))
        jobs = [job for job in tree["jobs"] if isinstance(job, str)]
        found = {"section": dict(tree["section"]), "jobs": jobs, "time": float(tree["time"])}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if jobs and tree.get("run") == str(run.resolve()) else None


def _cluster(section: dict[str, Any]) -> Cluster | None:
    """The cluster from a recorded section; None if the section is no longer valid."""
    try:
        cls = kinds("cluster").get(str(section.get("kind")))
        found: Cluster | None = None if cls is None else parse_tree(section, cls)
    except UserError:
        return None
    return found
