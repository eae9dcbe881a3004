"""SLURM, as a cluster of zeromt."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configs import UserError
from configs.components import component
from configs.process.streams import note
from launcher.clusters.slurm.scheduler import JOB_ID, choose_lead, find_job, sbatch, writes_into
from launcher.clusters.slurm.script import render_array, render_training
from launcher.clusters.slurm.section import SlurmSection, parse_time
from launcher.jobs import Array, Job, JobState, Training
from launcher.jobs.cluster import show_files
from launcher.jobs.job import most_nodes
from launcher.machine.supervise import Supervisor

_PATIENCE_SECONDS = 60


@component("cluster", "slurm")
class SlurmCluster(SlurmSection):
    """SLURM: batch scripts from reviewed templates; jobs requeue themselves."""

    def processes(self) -> int:
        """One for each GPU."""
        return self.gpus_per_node

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """As every cluster with a queue; warns of a job that would get too few cores for its GPUs."""
        if not (arguments["array"] or self.cpus_per_node or self.exclusive) and self.gpus_per_node:
            note(
                f"warning: cpus_per_node: none with {self.gpus_per_node} GPUs on each node, and SLURM then gives one "
                f"core unless the site says otherwise; give it, such as --set cpus_per_node={8 * self.gpus_per_node}"
            )
        return super().launch(supervisor, **arguments)

    def render(self, job: Job) -> str:
        """The batch script of a job."""
        if isinstance(job, Training):
            lead = choose_lead(self, job.slowest_save)
            return render_training(self, job, output=f"{job.logs}/slurm-%j.out", lead=lead)
        assert isinstance(job, Array)
        pattern = "%j" if job.is_merge else "%A_%a"
        return render_array(self, job, output=f"{job.logs}/{job.words[0]}-{pattern}.out")

    def check(self, text: str) -> None:
        """Ask SLURM whether it would accept a script."""
        sbatch(text, "--test-only")

    def submit(self, text: str, *, after: str | None, needs_success: bool) -> str:
        """Submit a script; returns the job's number."""
        if after is None:
            return sbatch(text, "--parsable")
        kind = "afterok" if needs_success else "afterany"
        never = ["--kill-on-invalid-dep=yes"] if needs_success else []
        return sbatch(text, "--parsable", f"--dependency={kind}:{after}", *never)

    def how_to_follow(self, jobs: list[str], run: str, logs: Path, *, array: str | None) -> list[str]:
        """By SLURM's own commands and zeromt's."""
        queue = f"squeue -j {','.join(jobs)}"
        if array is not None:
            return [
                f"submitted job {jobs[0]} (the parts) and {jobs[1]} (their merge)",
                f"follow them:  {queue};  tail -F {logs}/{array}-*.out",
                f"launch after them:  zeromt launch slurm ... --after {jobs[1]}",
            ]
        return [
            f"submitted job {', '.join(jobs)}",
            f"follow it:  {queue};  tail -F {logs}/slurm-{jobs[0]}.out;  zeromt status {run}",
            f"save and end it:  zeromt stop {run}",
        ]

    def in_short(self, jobs: Sequence[Job]) -> list[str]:
        """Ranks and hours of a training, and what comes at the time limit; tasks and hours of an array."""
        hours, first = parse_time(self.time) / 3600, jobs[0]
        limit = _count(hours, "hour")
        if isinstance(first, Array):
            node_hours = _count(hours * (first.parts + 1), "node hour")
            return [
                f"{_count(first.parts, 'task')} and their merge, each on a node for at most {limit}: {node_hours}",
                "at its time limit SLURM kills a task; the same launch again goes on with what is not done",
            ]
        assert isinstance(first, Training)
        nodes, each = most_nodes(first.nodes), first.nproc
        ranks = _count(nodes * each, "rank") if each else "a rank for each core"
        where = f"{'at most ' if '-' in first.nodes else ''}{_count(nodes, 'node')}"
        amount = hours * nodes * (self.gpus_per_node or 1) * first.num_links
        in_all = _count(amount, "GPU hour" if self.gpus_per_node else "node hour")
        jobs_of = f"{first.num_links} jobs, one after the other, each of " if first.num_links > 1 else ""
        lead = choose_lead(self, first.slowest_save)
        return [
            f"{jobs_of}{ranks} on {where} for at most {limit}: {in_all}",
            f"{lead} s before the time limit, or at a preemption, SLURM sends SIGUSR1: the run saves a checkpoint and "
            f"ends with 75; {self._then(first)}",
        ]

    def _then(self, job: Training) -> str:
        """What follows a time limit."""
        if job.num_links > 1:
            return f"the next of the {job.num_links} jobs goes on from it"
        if not self.requeue:
            return "the same launch again goes on from it (--chain N submits N jobs at once)"
        return (
            f"the job requeues itself and goes on from it, at most {self.max_requeues} times without a new checkpoint"
        )

    def query(self, job: str) -> JobState | None:
        """A job's state from squeue."""
        return find_job(job)

    def owns(self, job: str, logs: Path) -> bool:
        """Whether the job is this user's and writes its output into these logs, by what scontrol says."""
        return writes_into(job, logs)

    def stop(self, job: str) -> None:
        """Cancel a job."""
        try:
            done = subprocess.run(
                ["scancel", job], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"scancel: {error}; use a machine that reaches the controller") from error
        if done.returncode != 0:
            raise UserError(f"scancel: {' '.join(done.stderr.split())}; only your own jobs can be stopped")

    def log(self, job: str, logs: Path, *, follow: bool) -> list[str]:
        """The command that shows the output of a job, or of the tasks of an array."""
        if not JOB_ID.fullmatch(job):
            return super().log(job, logs, follow=follow)
        return show_files(sorted([*logs.glob(f"*-{job}.out"), *logs.glob(f"*-{job}_*.out")]), follow=follow)


def _count(number: float, what: str) -> str:
    return f"{number:,.10g} {what}{'' if number == 1 else 's'}"
