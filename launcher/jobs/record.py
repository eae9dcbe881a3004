"""The record of submitted jobs and their cluster: `logs/jobs.json` in the run's folder."""

import dataclasses
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from configs import UserError
from configs.components import kinds
from configs.load import parse_tree
from configs.process.files.inside import read_json, write_text
from configs.reading.passwords import HIDDEN
from launcher.jobs.cluster import Cluster
from launcher.jobs.job import GONE, UNKNOWN, JobState
from trainer.runs.layout import JOBS_FILE, LOGS
from trainer.runs.status import Status

C = TypeVar("C", bound=Cluster)
_OTHERS = "slurm"
"""The kind of a job that status.json names but `zeromt launch` has not submitted: its id is SLURM's."""

_PLAIN = re.compile(r"(NCCL|GLOO|UCX|FI|OMP|KMP|MKL|CUDA|TORCH|PYTORCH)_\w+")
"""Variables that are settings of a library, and so no secrets."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunsJob:
    """A job of a run, and the jobs submitted with it."""

    run: Path
    """The run's folder."""
    id: str
    cluster: Cluster | None
    """None for an unknown kind."""
    together: list[str]
    """All jobs submitted together with it, in order."""
    is_array: bool = False
    """Whether they run a command in parts."""

    def query(self) -> JobState | None:
        """The state of the job; see `Cluster.query`."""
        return JobState(id=self.id, state=UNKNOWN) if self.cluster is None else self.cluster.query(self.id)

    def owned(self, job: str) -> Cluster:
        """Its cluster, if the cluster's own record ties a job to this run.

        Raises:
            UserError: it does not.
        """
        if self.cluster is None or not self.cluster.owns(job, self.run / LOGS):
            kind = "its cluster" if self.cluster is None else self.cluster.kind
            raise UserError(
                f"RUN: {self.run} names job {job}, and {kind} has no job of yours with that name and these logs; "
                "end it by the cluster's own command if it is yours"
            )
        return self.cluster

    def to_cancel(self) -> list[str]:
        """The jobs that `zeromt stop` cancels: those that wait in the queue, and all of an array, which is no run."""
        if self.cluster is None:
            return []
        states = {job: self.cluster.query(job) for job in self.together}
        return [job for job, state in states.items() if state is not None and _ends(state, self.is_array)]


def _ends(state: JobState, is_array: bool) -> bool:
    return state.is_waiting or (is_array and state.end is None and state.state not in (GONE, UNKNOWN))


def write_submitted(run: Path, cluster: Cluster, jobs: list[str], *, is_array: bool = False) -> None:
    """Record submitted jobs and their run's folder; in a copy of the folder the record does not count.

    Values of the site's `environment` are not needed to ask for a job or to stop it, and those that may be secrets are
    not recorded.

    Raises:
        OSError: it cannot be written.
    """
    tree = {
        "run": str(run.resolve()),
        "section": dataclasses.asdict(without_values(cluster)),
        "jobs": jobs,
        "is_array": is_array,
        "time": time.time(),
    }
    write_text(run / LOGS / JOBS_FILE, json.dumps(tree) + "\n")


def without_values(cluster: C) -> C:
    """A cluster with `***` for each value of its `environment` that may be a secret."""
    environment = getattr(cluster, "environment", None)
    if not isinstance(environment, dict) or not environment:
        return cluster
    shown = {name: value if _PLAIN.fullmatch(name) else HIDDEN for name, value in environment.items()}
    return dataclasses.replace(cluster, environment=shown)  # type: ignore[call-arg]


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
        given = {"together": submitted["jobs"], "is_array": submitted["is_array"]}
        return RunsJob(run=run, id=job, cluster=_cluster(submitted["section"]), **given)
    return RunsJob(run=run, id=job, cluster=_cluster({"kind": _OTHERS}), together=[job])


def _read(run: Path) -> dict[str, Any] | None:
    """The record for a folder; None if there is none or it is invalid."""
    try:
        tree = read_json(run / LOGS / JOBS_FILE)
        jobs = [job for job in tree["jobs"] if isinstance(job, str)]
        record = {"section": dict(tree["section"]), "jobs": jobs, "time": float(tree["time"])}
        record["is_array"] = tree.get("is_array") is True
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if jobs and tree.get("run") == str(run.resolve()) else None


def _cluster(section: dict[str, Any]) -> Cluster | None:
    """The cluster from a recorded section; None if the section is no longer valid."""
    try:
        cls = kinds("cluster").get(str(section.get("kind")))
        cluster: Cluster | None = None if cls is None else parse_tree(section, cls)
    except UserError:
        return None
    return cluster
